#!lua flags=allow-oom
