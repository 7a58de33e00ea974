"""One parameter server for both frameworks, over MPI (`mpi_ps`) and over gRPC (`grpc_ps` in torch).

    worker 0 .. P - 1                                  server 0 .. S - 1, the last ranks of the launch
    +-----------------------------+                    +-------------------------------------------+
    | trainers: one per algorithm |                    | server: takes messages in their order     |
    | links: weights cut in shards|--- OPEN, LOAD ---->|   sessions: the shard of each trainer,    |
    |   [N s / S, N (s + 1) / S)  |--- PUSH ---------->|   and what a push does to it              |
    |                             |<-- VALUES ---------|                                           |
    +-----------------------------+                    +-------------------------------------------+
              `messages` over a `Transport`: `over_mpi` or `over_grpc`

Servers know no framework: they work on flat float32 arrays. A network's own optimizer runs on its worker.

    algorithm      a worker pushes                  the server                               it answers
    sync           gradients                        means those of all workers               the mean
    asynchronous   what its own optimizer changed   adds it to its weights                   its weights
    downpour       accrued gradients                updates its weights (`downpour.Rule`)    nothing; workers fetch
    easgd          its weights                      moves the centre (`algorithms.easgd`)    the centre of before

With masters (downpour) workers push to them, and they to the first server, which holds all weights.
"""
