"""Training tests run side by side on few cores: one thread each is the fastest."""

import torch

torch.set_num_threads(1)
