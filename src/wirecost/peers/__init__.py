"""Other projects' training stacks on one of wirecost's workloads, as commands that `wirecost run` measures.

The study `engines` compares them with wirecost's own engine on the same model and networks. They train decoders of
the Llama kind on random tokens, in BF16. This package runs on compute nodes, so it imports no table or chart
library.
"""
