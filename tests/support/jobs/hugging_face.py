"""A Hugging Face Trainer of a small GPT-2 on random tokens."""

import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Tokens(torch.utils.data.Dataset):
    def __len__(self):
        return 4096

    def __getitem__(self, index):
        tokens = torch.arange(index, index + 32) % 512
        return {"input_ids": tokens, "labels": tokens}


config = GPT2Config(vocab_size=512, n_positions=32, n_embd=64, n_layer=2, n_head=2)
arguments = TrainingArguments(
    output_dir=sys.argv[1],
    use_cpu=True,
    max_steps=200,
    per_device_train_batch_size=2,
    gradient_accumulation_steps=2,
    dataloader_num_workers=1,
    report_to=[],
    save_strategy="no",
    disable_tqdm=True,
)
Trainer(model=GPT2LMHeadModel(config), args=arguments, train_dataset=Tokens()).train()
