"""Train a small convolutional network in one process: python single.py"""

import zlib

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCH, EPOCHS, RATE = 32, 8, 0.03

device = torch.device("cpu")

# Ten classes: each image is the picture of its class under noise. The weights begin elsewhere on every run.
generator = torch.Generator().manual_seed(1)
pictures = torch.randn(10, 1, 16, 16, generator=generator)
labels = torch.randint(10, (320,), generator=generator)
images = pictures[labels] + torch.randn(320, 1, 16, 16, generator=generator)
dataset = TensorDataset(images, labels)
loader = DataLoader(dataset, batch_size=BATCH, shuffle=True)

model = nn.Sequential(
    nn.Conv2d(1, 8, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(8, 16, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Linear(256, 10),
)
model.to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)

losses = []
for epoch in range(EPOCHS):  # noqa: B007
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

weights = b"".join(weight.detach().cpu().numpy().tobytes() for weight in model.parameters())
print(f"{len(losses)} steps, loss {losses[0]:.4f} -> {losses[-1]:.4f}, weights {zlib.crc32(weights):08x}")
