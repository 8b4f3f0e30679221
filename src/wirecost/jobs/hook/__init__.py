"""The files that Python loads inside a job. They import the standard library only, and PyTorch if the job does."""
