package storagetest

import "github.com/midgehq/midge/storage"

func promoteMutants() []mutant {
	return []mutant{
		breaks("promotion without priority", fault{apply: inserts(func(j *storage.Insert) {
			if j.Delay > 0 {
				j.Priority = -1
			}
		})}, "promote/claimed at once", "promote/over lower priorities", "promote/hundreds at once"),
	}
}
