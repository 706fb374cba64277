"""The HTTP side of pictures and clips, that the routes of videos, images, batches and files stand on.

`bodies` are what clients send, `requests` what a job's row keeps of it; `sizes` holds every rule on pixels and seconds; `views` says what
clients see of a job.
"""
