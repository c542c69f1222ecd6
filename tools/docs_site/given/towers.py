# What the example of a retrieval takes as given: two towers that are trained with the other items
# of the batch as negatives, and a head that tells the genre of an item.
import numpy as np
from docs_site.ended import ended
from mindspore import Tensor, nn, ops

from rec_summary import RecModel


class Towers(nn.Cell):
    def __init__(self):
        super().__init__()
        self.user, self.item, self.genre = nn.Dense(8, 8), nn.Dense(8, 8), nn.Dense(8, 3)
        self.loss = nn.CrossEntropyLoss()
        self.own = Tensor(np.arange(64, dtype=np.int32))

    def construct(self, user, item, genre):
        vectors = self.item(item)
        scores = ops.matmul(self.user(user), vectors.T)
        genres = self.genre(vectors)
        loss = self.loss(scores, self.own) + self.loss(genres, genre)
        return loss, scores, genres, genre


def _batches():
    random = np.random.default_rng(1)
    for _ in range(60):
        item = random.normal(size=(64, 8)).astype(np.float32)
        user = item + random.normal(size=(64, 8)).astype(np.float32)
        yield user, item, item[:, :3].argmax(axis=1).astype(np.int32)


stream = ended(_batches(), ["user", "item", "genre"])
towers = Towers()
model = RecModel(towers, optimizer=nn.Adam(towers.trainable_params(), 0.01), keep_outputs=True)
