package midge

import "github.com/midgehq/midge/storage"

// Ref is a task's identity: queue and id, printed "mail/0197…".
type Ref = storage.Ref
