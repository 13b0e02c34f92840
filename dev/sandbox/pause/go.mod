module millrace.dev/sandbox/pause

go 1.21
