"""What `ddpgen doctor` looks at, one file a subject; `examine` is where to start reading."""
