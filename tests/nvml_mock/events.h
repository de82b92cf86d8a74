/* Event sets: errors of a device (Xid) that the fault `xid:NUMBER:DEVICE` lets come once.
 * A wait blocks for as long as its caller asks for, as the driver's does: clients that wait in a loop must not spin. */
typedef struct nvmlEventSet_st { u64 mask[MAXGPU]; int gen; } *nvmlEventSet_t;
typedef struct { nvmlDevice_t device; u64 eventType, eventData; u32 gpuInstanceId, computeInstanceId; } nvmlEventData_t;
_Static_assert(sizeof(nvmlEventData_t) == 32, "event");
#define EVENT_XID 0x8ULL
/* The driver blocks in the kernel; shorter sleeps would cost a client CPU time that no driver costs it. */
#define POLL_SECONDS 0.1
#define EVENTS_OF_AN_H200 (0x1 | 0x2 | EVENT_XID | 0x10)

API nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *s) {
    ENTER_SYS(); NEED(s);
    *s = calloc(1, sizeof **s);
    (*s)->gen = atomic_load(&g_gen);
    atomic_fetch_add(&g_event_sets, 1);
    return NVML_SUCCESS;
}
API nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t s) { ENTER_SYS(); NEED(s); free(s); atomic_fetch_sub(&g_event_sets, 1); return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t d, u64 *t) { ENTER_DEV(d); NEED(t); *t = EVENTS_OF_AN_H200; return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t d, u64 t, nvmlEventSet_t s) {
    ENTER_DEV(d); NEED(s);
    if (t & ~(u64)EVENTS_OF_AN_H200) return NVML_ERROR_NOT_SUPPORTED;
    s->mask[d->idx] |= t;
    return NVML_SUCCESS;
}
static fault_t *xid_that_came(nvmlEventSet_t s) {
    fault_t *found = NULL;
    pthread_mutex_lock(&g_lock);
    for (int i = 0; i < g_nfault && !found; i++) {
        fault_t *f = &g_fault[i];
        if (strcmp(f->kind, "xid") || f->fired || f->dev < 0 || f->dev >= MAXGPU || !active(f, 0)) continue;
        if (s->mask[f->dev] & EVENT_XID) { f->fired = 1; found = f; }
    }
    pthread_mutex_unlock(&g_lock);
    return found;
}
static nvmlReturn_t wait_for_event(nvmlEventSet_t s, nvmlEventData_t *e, u32 milliseconds) {
    NEED(s && e);
    double end = now_mono() + milliseconds / 1000.0, left;
    do {
        poll_ctl(now_mono());
        if (atomic_load(&g_init) <= 0 || s->gen != atomic_load(&g_gen)) return NVML_ERROR_UNINITIALIZED;
        fault_t *f = xid_that_came(s);
        if (f) {
            nvmlDevice_t device = &g_dev[s->gen % MAXGEN][f->dev];
            *e = (nvmlEventData_t){device, EVENT_XID, (u64)(f->code < 0 ? 79 : f->code), ~0u, ~0u};
            return NVML_SUCCESS;
        }
        left = end - now_mono();
        if (left > 0) sleep_hard(left < POLL_SECONDS ? left : POLL_SECONDS);
    } while (left > 0);
    return NVML_ERROR_TIMEOUT;
}
API nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t s, nvmlEventData_t *e, u32 ms) { ENTER_SYS(); return wait_for_event(s, e, ms); }
#ifndef NVML_MOCK_OLD
API nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t s, nvmlEventData_t *e, u32 ms) { ENTER_SYS(); return wait_for_event(s, e, ms); }
#endif
