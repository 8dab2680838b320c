package dedupe

import "errors"

// The errors of Open and of the methods wrap one of these; the text around them says what to do. Errors of the file
// system are wrapped as they are, so errors.Is(err, fs.ErrPermission) and syscall.ENOSPC work, too.
var (
	// ErrLocked says that the directory is in use, by another process or by another Store of this one. OpenSlot takes
	// the next directory instead.
	ErrLocked = errors.New("dedupe: the store is in use")

	// ErrNewer says that a newer version wrote the store. Nothing was changed.
	ErrNewer = errors.New("dedupe: the store was written by a newer version")

	// ErrDamaged says that something in the store cannot be read as it was written. From Open: nothing was changed, and
	// Quarantine moves the store away. From Claim and Get: the key counts neither as seen nor as new.
	ErrDamaged = errors.New("dedupe: the store is damaged")

	// ErrForeign says that the directory holds something that is not a dedupe store.
	ErrForeign = errors.New("dedupe: not a dedupe store")

	// ErrUnavailable says that the store is being reopened after a write error. Wait in Room, then try again.
	ErrUnavailable = errors.New("dedupe: the store is being reopened")

	// ErrFatal says that the store cannot be repaired in this process (Options.OnFatal was called).
	ErrFatal = errors.New("dedupe: the store failed for good in this process")

	// ErrClosed says that Close was called.
	ErrClosed = errors.New("dedupe: the store is closed")

	// ErrTimeout says that Close gave up waiting. What was not reported durable may not be.
	ErrTimeout = errors.New("dedupe: timed out")
)
