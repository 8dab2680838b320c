package dedupe

const childDir = "GAPLESS_DEDUPE_CHILD"

func child(dir string) {}
