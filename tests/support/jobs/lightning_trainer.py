"""A Lightning Trainer on two nodes of one process each."""

import sys

import lightning
import torch


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(3)])

    def training_step(self, batch, index):
        return self.layers(batch).square().mean()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())


trainer = lightning.Trainer(
    accelerator="cpu",
    devices=1,
    num_nodes=2,
    strategy="ddp",
    max_steps=200,
    accumulate_grad_batches=2,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    default_root_dir=sys.argv[1],
)
trainer.fit(Model(), torch.utils.data.DataLoader(torch.randn(4096, 64), batch_size=4))  # type: ignore[arg-type]
