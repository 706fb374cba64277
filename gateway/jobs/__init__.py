"""Image and video jobs: durable rows, a dispatcher that feeds them to the engine pool, artifacts, webhooks.

`job` is what a job is (no I/O), `store` keeps the rows, a dispatcher (`lease` or `postgres`) hands them to workers, `handlers` do the
work on the pool, `artifacts` keeps the files, and `service.Jobs` is what the routes talk to.
"""
