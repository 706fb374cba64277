"""What each kind of job does: `video`, `image`, `batch`. `pictures` is what they share: requests to the lease's engine, and its answers."""
