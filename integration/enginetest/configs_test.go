package enginetest

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const groupConfig = kmsg.ConfigResourceTypeGroupConfig

// alterConfig sets one setting that the broker keeps.
func (w *world) alterConfig(kind kmsg.ConfigResourceType, name, key, value string) {
	w.Helper()
	ctx, cancel := patient()
	defer cancel()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kind, name
	c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	c.Name, c.Value, c.Op = key, &value, kmsg.IncrementalAlterConfigOpSet
	r.Configs = append(r.Configs, c)
	req.Resources = append(req.Resources, r)
	resp, err := req.RequestWith(ctx, w.cl)
	if err != nil {
		w.Fatal(err)
	}
	for _, r := range resp.Resources {
		if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
			w.Fatalf("set %s of %s: %v", key, name, err)
		}
	}
}
