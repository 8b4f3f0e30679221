"""A model of LitGPT, trained by Lightning Fabric as LitGPT's own scripts do."""

import lightning
import torch
from litgpt.model import GPT, Config

fabric = lightning.Fabric(accelerator="cpu", devices=1, num_nodes=2, strategy="ddp")
fabric.launch()
config = Config(block_size=32, vocab_size=512, padded_vocab_size=512, n_layer=2, n_head=2, n_embd=64)
model = GPT(config)
optimizer = torch.optim.AdamW(model.parameters())
model, optimizer = fabric.setup(model, optimizer)
tokens = torch.randint(0, 512, (4, 32))
for iteration in range(200):
    last = iteration % 2 == 1
    with fabric.no_backward_sync(model, enabled=not last):
        logits = model(tokens)
        fabric.backward(torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten()))
    if last:
        optimizer.step()
        optimizer.zero_grad()
