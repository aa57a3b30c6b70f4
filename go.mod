module github.com/midgehq/midge

go 1.25
