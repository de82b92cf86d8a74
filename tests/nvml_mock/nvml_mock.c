/*
 * nvml_mock.c - a fault-injecting stand-in for libnvidia-ml.so.1 (Linux).
 *
 * Written from the public NVML ABI (function names, structure layouts, return codes) so that
 * unmodified NVML clients (nvidia-ml-py/pynvml, nvitop, gpustat, nvtop, btop, ...) run on a
 * machine without a GPU through LD_LIBRARY_PATH.  No code from NVIDIA or from any other mock.
 * See README.md for the environment variables and the grammar of faults; tests/nvml_mock/__init__.py compiles it.
 *
 * -DNVML_MOCK_OLD leaves out the second and third versions of calls, as a driver of about 2020 (R450) does.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* ------------------------------------------------------------------------------------ types */
typedef unsigned int uint;
typedef int nvmlReturn_t;
typedef struct nvmlDevice_st *nvmlDevice_t;
typedef int nvmlClockType_t, nvmlClockId_t, nvmlTemperatureSensors_t, nvmlTemperatureThresholds_t, nvmlPstates_t,
    nvmlEnableState_t, nvmlComputeMode_t, nvmlBrandType_t, nvmlMemoryErrorType_t, nvmlEccCounterType_t,
    nvmlMemoryLocation_t, nvmlPcieUtilCounter_t, nvmlGpuTopologyLevel_t, nvmlGpuP2PCapsIndex_t, nvmlGpuP2PStatus_t,
    nvmlSamplingType_t, nvmlValueType_t, nvmlPerfPolicyType_t, nvmlPageRetirementCause_t, nvmlInforomObject_t,
    nvmlNvLinkCapability_t, nvmlNvLinkErrorCounter_t, nvmlIntNvLinkDeviceType_t, nvmlDriverModel_t,
    nvmlGpuOperationMode_t, nvmlGpuVirtualizationMode_t, nvmlRestrictedAPI_t, nvmlEncoderType_t;
typedef unsigned int nvmlDeviceArchitecture_t, nvmlBusType_t, nvmlPowerSource_t, nvmlAffinityScope_t;

enum {
    NVML_SUCCESS = 0, NVML_ERROR_UNINITIALIZED = 1, NVML_ERROR_INVALID_ARGUMENT = 2, NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NO_PERMISSION = 4, NVML_ERROR_NOT_FOUND = 6, NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_DRIVER_NOT_LOADED = 9, NVML_ERROR_TIMEOUT = 10, NVML_ERROR_FUNCTION_NOT_FOUND = 13,
    NVML_ERROR_GPU_IS_LOST = 15, NVML_ERROR_RESET_REQUIRED = 16, NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18,
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25, NVML_ERROR_UNKNOWN = 999
};
enum { NVML_VALUE_TYPE_DOUBLE = 0, NVML_VALUE_TYPE_UNSIGNED_INT = 1, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG = 3,
       NVML_VALUE_TYPE_SIGNED_LONG_LONG = 4 };

typedef struct { char busIdLegacy[16]; uint domain, bus, device, pciDeviceId, pciSubSystemId; char busId[32]; } nvmlPciInfo_t;
typedef struct { uint version, domain, bus, device, pciDeviceId, pciSubSystemId, baseClass, subClass; char busId[32]; } nvmlPciInfoExt_v1_t;
typedef nvmlPciInfoExt_v1_t nvmlPciInfoExt_t;
typedef struct { unsigned long long l1Cache, l2Cache, deviceMemory, registerFile; } nvmlEccErrorCounts_t;
typedef struct { uint gpu, memory; } nvmlUtilization_t;
typedef struct { int isGridLicenseSupported; uint licensableFeaturesCount; struct { uint featureCode, featureState; char licenseInfo[128], productName[128]; uint featureEnabled, expiry[4]; } gridLicensableFeatures[3]; } nvmlGridLicensableFeatures_t;
typedef struct { unsigned long long total, free, used; } nvmlMemory_t;
typedef struct { uint version; unsigned long long total, reserved, free, used; } nvmlMemory_v2_t;
typedef struct { unsigned long long bar1Total, bar1Free, bar1Used; } nvmlBAR1Memory_t;
typedef struct { uint pid; unsigned long long usedGpuMemory; } nvmlProcessInfo_v1_t;
typedef struct { uint pid; unsigned long long usedGpuMemory; uint gpuInstanceId, computeInstanceId; } nvmlProcessInfo_v2_t;
typedef nvmlProcessInfo_v2_t nvmlProcessInfo_t;
typedef struct { uint pid; unsigned long long usedGpuMemory; uint gpuInstanceId, computeInstanceId; unsigned long long usedGpuCcProtectedMemory; } nvmlProcessDetail_v1_t;
typedef struct { uint version, mode, numProcArrayEntries; nvmlProcessDetail_v1_t *procArray; } nvmlProcessDetailList_v1_t;
typedef nvmlProcessDetailList_v1_t nvmlProcessDetailList_t;
typedef struct { uint multiprocessorCount, sharedCopyEngineCount, sharedDecoderCount, sharedEncoderCount, sharedJpegCount, sharedOfaCount, gpuInstanceSliceCount, computeInstanceSliceCount; unsigned long long memorySizeMB; } nvmlDeviceAttributes_t;
typedef struct { uint max, high, partial, low, none; } nvmlRowRemapperHistogramValues_t;
typedef union { double dVal; int siVal; uint uiVal; unsigned long ulVal; unsigned long long ullVal; signed long long sllVal; unsigned short usVal; } nvmlValue_t;
typedef struct { unsigned long long timeStamp; nvmlValue_t sampleValue; } nvmlSample_t;
typedef struct { unsigned long long referenceTime, violationTime; } nvmlViolationTime_t;
typedef struct { uint fieldId, scopeId; long long timestamp, latencyUsec; nvmlValueType_t valueType; nvmlReturn_t nvmlReturn; nvmlValue_t value; } nvmlFieldValue_t;
typedef struct { uint pid; unsigned long long timeStamp; uint smUtil, memUtil, encUtil, decUtil; } nvmlProcessUtilizationSample_t;
typedef struct { unsigned long long timeStamp; uint pid, smUtil, memUtil, encUtil, decUtil, jpgUtil, ofaUtil; } nvmlProcessUtilizationInfo_v1_t;
typedef struct { uint version, processSamplesCount; unsigned long long lastSeenTimeStamp; nvmlProcessUtilizationInfo_v1_t *procUtilArray; } nvmlProcessesUtilizationInfo_v1_t;
typedef nvmlProcessesUtilizationInfo_v1_t nvmlProcessesUtilizationInfo_t;
typedef struct { uint version; nvmlTemperatureSensors_t sensorType; int temperature; } nvmlTemperature_v1_t;
typedef nvmlTemperature_v1_t nvmlTemperature_t;
typedef struct { uint version; int marginTemperature; } nvmlMarginTemperature_v1_t;
typedef nvmlMarginTemperature_v1_t nvmlMarginTemperature_t;
typedef struct { unsigned long long protectedMemSizeKib, unprotectedMemSizeKib; } nvmlConfComputeMemSizeInfo_t;
typedef struct { uint gpuUtilization, memoryUtilization; unsigned long long maxMemoryUsage, time, startTime; uint isRunning, reserved[5]; } nvmlAccountingStats_t;
typedef struct { uint version; char branch[80]; } nvmlSystemDriverBranchInfo_v1_t;
typedef nvmlSystemDriverBranchInfo_v1_t nvmlSystemDriverBranchInfo_t;
#define NVML_STRUCT_VERSION(data, ver) (unsigned int)(sizeof(nvml##data##_v##ver##_t) | ((ver) << 24U))
#define nvmlMemory_v2 NVML_STRUCT_VERSION(Memory, 2)
#define nvmlTemperature_v1 NVML_STRUCT_VERSION(Temperature, 1)
#define nvmlPciInfoExt_v1 NVML_STRUCT_VERSION(PciInfoExt, 1)
#define nvmlProcessDetailList_v1 NVML_STRUCT_VERSION(ProcessDetailList, 1)
#define nvmlProcessesUtilizationInfo_v1 NVML_STRUCT_VERSION(ProcessesUtilizationInfo, 1)
#define nvmlMarginTemperature_v1 NVML_STRUCT_VERSION(MarginTemperature, 1)
typedef unsigned int u32;
typedef unsigned long long u64;

/* ABI sizes that every client relies on . */
_Static_assert(sizeof(nvmlPciInfo_t) == 68, "pci");
_Static_assert(sizeof(nvmlMemory_v2_t) == 40, "mem2");
_Static_assert(sizeof(nvmlProcessInfo_v1_t) == 16, "proc1");
_Static_assert(sizeof(nvmlProcessInfo_v2_t) == 24, "proc2");
_Static_assert(sizeof(nvmlProcessDetail_v1_t) == 32, "procdetail");
_Static_assert(sizeof(nvmlFieldValue_t) == 40, "field");
_Static_assert(sizeof(nvmlProcessUtilizationSample_t) == 32, "putil");
_Static_assert(sizeof(nvmlProcessUtilizationInfo_v1_t) == 40, "putil1");
_Static_assert(sizeof(nvmlSample_t) == 16, "sample");
_Static_assert(nvmlMemory_v2 == 0x2000028, "mem2 version");

/* --------------------------------------------------------------------------------- settings */
#define MAXGPU 256
#define MAXGEN 32
#define MAXPID 65536
#define MAXFAULT 64
#define MIG_MAX 7

struct nvmlDevice_st { int gen, idx, mig; }; /* mig: -1 = a whole GPU */

static struct nvmlDevice_st g_dev[MAXGEN][MAXGPU];
static struct nvmlDevice_st g_mig[MAXGEN][MAXGPU][MIG_MAX];
static int g_ngpu = 8, g_nproc = 4, g_npids, g_migcount[MAXGPU], g_nan_fan = 1, g_idle, g_globallock, g_gpm = 1, g_nvlink = 1, g_copies, g_cc[2] = {9, 0};
static atomic_int g_gpm_samples, g_event_sets; /* allocated and not given back */
static u32 g_pids[MAXPID];
static long g_latency_us;
static u64 g_memtotal = 143771ULL << 20; /* what nvidia-smi shows for an H200 SXM */
static char g_name[96] = "NVIDIA H200", g_driver[80] = "580.95.05", g_logpath[1024], g_ctlpath[1024];
static u32 g_cuda = 13000;
static atomic_int g_init, g_gen;
static double g_t0 = -1;
static pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER, g_big = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t g_once = PTHREAD_ONCE_INIT;

static double now_mono(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec * 1e-9; }
static u64 now_us(void) { struct timespec t; clock_gettime(CLOCK_REALTIME, &t); return (u64)t.tv_sec * 1000000ULL + t.tv_nsec / 1000; }
static double rel(void) { return g_t0 < 0 ? 0 : now_mono() - g_t0; }

/* ------------------------------------------------------------------------------------ faults
 * kind[:arg]...[@START[c]][+DURATION][=VALUE]   (see README.md)                              */
typedef struct {
    char kind[24], pat[64];
    int dev, code, start_calls, fired;
    double start, dur, value;
    atomic_long seen;
} fault_t;
static fault_t g_fault[MAXFAULT];
static int g_nfault;
static char g_faultsrc[4096];

static const struct { const char *cat, *subs[8]; } CATS[] = {
    {"power", {"Power", "Energy"}},
    {"temp", {"Temperature", "Thermal"}},
    {"util", {"GetUtilizationRates", "coderUtilization", "JpgUtil", "OfaUtil", "GetSamples"}},
    {"mem", {"MemoryInfo", "ProtectedMemoryUsage"}},
    {"procs", {"RunningProcess", "ProcessUtilization", "ProcessesUtilization", "Accounting"}},
    {"clock", {"Clock"}},
    {"pcie", {"Pcie"}},
    {"nvlink", {"NvLink", "Nvlink"}},
    {"ecc", {"Ecc", "RemappedRows", "RetiredPages", "RowRemapper", "MemoryErrorCounter", "RemapperStatus"}},
    {"fan", {"Fan"}},
    {"name", {"GetName"}},
    {"uuid", {"GetUUID"}},
    {"serial", {"GetSerial"}},
    {"pci", {"GetPciInfo"}},
    {"mig", {"Mig", "GpuInstance", "ComputeInstance"}},
    {"gpm", {"Gpm"}},
    {"fields", {"FieldValues"}},
    {"events", {"Event"}},
    {"handle", {"GetHandleBy"}},
    {"count", {"DeviceGetCount"}},
    {"driver", {"DriverVersion", "NVMLVersion"}},
    {"topo", {"Topology", "P2PStatus", "Affinity", "Numa"}},
};
static int pat_match(const char *pat, const char *fn) {
    if (!pat[0] || !strcmp(pat, "all")) return 1;
    if (!strncmp(pat, "nvml", 4)) return fnmatch(pat, fn, 0) == 0;
    for (size_t i = 0; i < sizeof CATS / sizeof *CATS; i++)
        if (!strcmp(CATS[i].cat, pat)) {
            for (int k = 0; k < 8 && CATS[i].subs[k]; k++) if (strstr(fn, CATS[i].subs[k])) return 1;
            return 0;
        }
    return fnmatch(pat, fn, 0) == 0 || strstr(fn, pat) != NULL;
}
static int isint(const char *s) { if (*s == '-') s++; if (!*s) return 0; while (*s) if (!isdigit((unsigned char)*s++)) return 0; return 1; }
static int takes_code(const char *k) {
    return !strcmp(k, "err") || !strcmp(k, "init") || !strcmp(k, "xid") || !strcmp(k, "count") || !strcmp(k, "manyprocs");
}
static void parse_faults(const char *src) {
    char buf[4096];
    snprintf(buf, sizeof buf, "%s", src);
    snprintf(g_faultsrc, sizeof g_faultsrc, "%s", src);
    int n = 0;
    for (char *sv = NULL, *tok = strtok_r(buf, ",; \n\t", &sv); tok && n < MAXFAULT; tok = strtok_r(NULL, ",; \n\t", &sv)) {
        fault_t *f = &g_fault[n];
        memset(f, 0, sizeof *f);
        f->dev = -1; f->dur = -1; f->code = -1; f->value = NAN;
        char *eq = strchr(tok, '='); if (eq) { *eq = 0; f->value = strtod(eq + 1, NULL); }
        char *plus = strchr(tok, '+'); if (plus) { *plus = 0; f->dur = strtod(plus + 1, NULL); }
        char *at = strchr(tok, '@');
        if (at) { *at = 0; char *end; f->start = strtod(at + 1, &end); if (*end == 'c') f->start_calls = 1; }
        char *sv2 = NULL, *p = strtok_r(tok, ":", &sv2);
        if (!p) continue;
        snprintf(f->kind, sizeof f->kind, "%s", p);
        int first = 1;
        while ((p = strtok_r(NULL, ":", &sv2))) {
            if (isint(p)) { if (first && takes_code(f->kind)) f->code = atoi(p); else f->dev = atoi(p); }
            else snprintf(f->pat, sizeof f->pat, "%s", p);
            first = 0;
        }
        n++;
    }
    g_nfault = n;
}
/* Is this fault active now?  Call-count triggers count matching calls. */
static int active(fault_t *f, int count_it) {
    if (f->start_calls) {
        long s = count_it ? atomic_fetch_add(&f->seen, 1) + 1 : atomic_load(&f->seen);
        if (s <= (long)f->start) return 0;
        return f->dur < 0 || s <= (long)(f->start + f->dur);
    }
    double t = rel();
    if (t < f->start) return 0;
    return f->dur < 0 || t < f->start + f->dur;
}
static fault_t *find_fault(const char *kind, const char *arg, int dev) {
    for (int i = 0; i < g_nfault; i++) {
        fault_t *f = &g_fault[i];
        if (strcmp(f->kind, kind)) continue;
        if (arg && strcmp(f->pat, arg)) continue;
        if (f->dev >= 0 && dev >= 0 && f->dev != dev) continue;
        if (f->dev >= 0 && dev < 0) continue;
        if (active(f, 0)) return f;
    }
    return NULL;
}
static int garbage(const char *what, int dev) { return g_nfault && find_fault("garbage", what, dev) != NULL; }
static int wrong(const char *what, int dev) { return g_nfault && find_fault("wrong", what, dev) != NULL; }

/* ----------------------------------------------------------------------------------- call log */
typedef struct fnrec { const char *name; atomic_ulong calls, errors; atomic_int reg; struct fnrec *next; } fnrec;
static fnrec *g_fns;
static atomic_ulong g_calls, g_errors, g_setters, g_device_calls[MAXGPU];
static double g_lastlog;
static void write_log(void) {
    if (!g_logpath[0]) return;
    char path[1100], tmp[1200], *o = path;
    for (const char *s = g_logpath; *s && o < path + sizeof path - 16; s++)
        if (s[0] == '%' && s[1] == 'p') { o += sprintf(o, "%d", (int)getpid()); s++; } else *o++ = *s;
    *o = 0;
    snprintf(tmp, sizeof tmp, "%s.tmp%d", path, (int)getpid());
    FILE *f = fopen(tmp, "w");
    if (!f) return;
    fprintf(f, "{\"pid\":%d,\"t\":%.3f,\"total\":%lu,\"errors\":%lu,\"setters\":%lu,\"init\":%d,\"gpm_samples\":%d,\"event_sets\":%d,\"calls\":{", (int)getpid(), rel(),
            atomic_load(&g_calls), atomic_load(&g_errors), atomic_load(&g_setters), atomic_load(&g_init), atomic_load(&g_gpm_samples), atomic_load(&g_event_sets));
    int first = 1;
    for (fnrec *r = g_fns; r; r = r->next) { fprintf(f, "%s\"%s\":%lu", first ? "" : ",", r->name, atomic_load(&r->calls)); first = 0; }
    fprintf(f, "},\"errors_by_fn\":{");
    first = 1;
    for (fnrec *r = g_fns; r; r = r->next)
        if (atomic_load(&r->errors)) { fprintf(f, "%s\"%s\":%lu", first ? "" : ",", r->name, atomic_load(&r->errors)); first = 0; }
    fprintf(f, "},\"by_device\":[");
    for (int i = 0; i < g_ngpu; i++) fprintf(f, "%s%lu", i ? "," : "", atomic_load(&g_device_calls[i]));
    fprintf(f, "]}\n");
    if (fclose(f) == 0) rename(tmp, path); else unlink(tmp);
}
__attribute__((destructor)) static void fini(void) { write_log(); }

static void load_pids(const char *s) {
    while (*s && g_npids < MAXPID) {
        while (*s && !isdigit((unsigned char)*s)) { if (!strncmp(s, "self", 4)) { g_pids[g_npids++] = (u32)getpid(); s += 4; continue; } s++; }
        if (!*s) break;
        g_pids[g_npids++] = (u32)strtoul(s, (char **)&s, 10);
    }
}
static time_t g_ctl_mtime; static long g_ctl_nsec; static double g_ctl_checked;
static void poll_ctl(double t) {
    if (!g_ctlpath[0] || t - g_ctl_checked < 0.05) return;
    g_ctl_checked = t;
    struct stat st;
    if (stat(g_ctlpath, &st)) { if (g_ctl_mtime) { g_ctl_mtime = 0; pthread_mutex_lock(&g_lock); parse_faults(""); pthread_mutex_unlock(&g_lock); } return; }
    if (st.st_mtim.tv_sec == g_ctl_mtime && st.st_mtim.tv_nsec == g_ctl_nsec) return;
    g_ctl_mtime = st.st_mtim.tv_sec; g_ctl_nsec = st.st_mtim.tv_nsec;
    char buf[4096]; int fd = open(g_ctlpath, O_RDONLY | O_CLOEXEC); if (fd < 0) return;
    ssize_t k = read(fd, buf, sizeof buf - 1); close(fd); if (k < 0) k = 0; buf[k] = 0;
    pthread_mutex_lock(&g_lock); parse_faults(buf); pthread_mutex_unlock(&g_lock);
}
static void setup(void) {
    const char *e;
    if ((e = getenv("NVML_MOCK_GPUS"))) g_ngpu = atoi(e);
    if (g_ngpu < 0) g_ngpu = 0;
    if (g_ngpu > MAXGPU) g_ngpu = MAXGPU;
    if ((e = getenv("NVML_MOCK_PROCS"))) g_nproc = atoi(e);
    if ((e = getenv("NVML_MOCK_LATENCY_US"))) g_latency_us = atol(e);
    if ((e = getenv("NVML_MOCK_NAME"))) snprintf(g_name, sizeof g_name, "%s", e);
    if ((e = getenv("NVML_MOCK_DRIVER"))) snprintf(g_driver, sizeof g_driver, "%s", e);
    if ((e = getenv("NVML_MOCK_CUDA"))) g_cuda = (u32)atoi(e);
    if ((e = getenv("NVML_MOCK_CC"))) sscanf(e, "%d.%d", &g_cc[0], &g_cc[1]);
    if ((e = getenv("NVML_MOCK_MEM_MIB"))) g_memtotal = strtoull(e, NULL, 10) << 20;
    if ((e = getenv("NVML_MOCK_FAN"))) g_nan_fan = !atoi(e);
    if ((e = getenv("NVML_MOCK_GPM"))) g_gpm = atoi(e);
    if ((e = getenv("NVML_MOCK_NVLINK"))) g_nvlink = atoi(e);
    if ((e = getenv("NVML_MOCK_COPIES"))) g_copies = atoi(e);
    if ((e = getenv("NVML_MOCK_IDLE"))) g_idle = atoi(e);
    if ((e = getenv("NVML_MOCK_GLOBAL_LOCK"))) g_globallock = atoi(e);
    if ((e = getenv("NVML_MOCK_LOG"))) snprintf(g_logpath, sizeof g_logpath, "%s", e);
    if ((e = getenv("NVML_MOCK_CTL"))) snprintf(g_ctlpath, sizeof g_ctlpath, "%s", e);
    if ((e = getenv("NVML_MOCK_PIDS"))) load_pids(e);
    if ((e = getenv("NVML_MOCK_PIDS_FILE"))) {
        int fd = open(e, O_RDONLY | O_CLOEXEC);
        if (fd >= 0) { static char b[1 << 20]; ssize_t k = read(fd, b, sizeof b - 1); close(fd); if (k > 0) { b[k] = 0; load_pids(b); } }
    }
    if ((e = getenv("NVML_MOCK_MIG")))  /* "0:3,2:7" = GPU 0 has 3 MIG devices, GPU 2 has 7 */
        for (const char *p = e; *p;) {
            char *q; long d = strtol(p, &q, 10); if (q == p) break;
            long n = 1; if (*q == ':') n = strtol(q + 1, &q, 10);
            if (d >= 0 && d < MAXGPU) g_migcount[d] = n > MIG_MAX ? MIG_MAX : (int)n;
            p = *q ? q + 1 : q;
        }
    if ((e = getenv("NVML_MOCK_FAULT"))) parse_faults(e);
    for (int g = 0; g < MAXGEN; g++) for (int i = 0; i < MAXGPU; i++) {
        g_dev[g][i] = (struct nvmlDevice_st){g, i, -1};
        for (int m = 0; m < MIG_MAX; m++) g_mig[g][i][m] = (struct nvmlDevice_st){g, i, m};
    }
    g_t0 = now_mono();
    poll_ctl(g_t0);
}
__attribute__((constructor)) static void ctor(void) { pthread_once(&g_once, setup); }

static void sleep_hard(double s) { /* not interruptible by handled signals, like a stuck driver call */
    double end = now_mono() + s, left;
    while ((left = end - now_mono()) > 0) { struct timespec ts = {(time_t)left, (long)((left - (time_t)left) * 1e9)}; nanosleep(&ts, NULL); }
}
static void sleep_dstate(double s) { /* a real 'D' in /proc/PID/stat: the parent of a vfork child */
    struct timespec ts = {(time_t)s, 0};
    pid_t p = vfork();
    if (p == 0) { syscall(SYS_nanosleep, &ts, NULL); _exit(0); }
    if (p < 0) sleep_hard(s);
}

static int g_cur_count(void) {
    fault_t *f = g_nfault ? find_fault("count", NULL, -1) : NULL;
    return f && f->code >= 0 ? (f->code > MAXGPU ? MAXGPU : f->code) : g_ngpu;
}
static int mig_gone(int d, int position) { fault_t *f = g_nfault ? find_fault("migempty", NULL, d) : NULL; return f && (isnan(f->value) || (int)f->value == position); }
static int reload_now(void) { return g_nfault && find_fault("reload", NULL, -1) != NULL; }

enum { F_DEV = 1, F_NOINIT = 2, F_SETTER = 4 };
static nvmlReturn_t enter(fnrec *r, const char *name, nvmlDevice_t d, int flags) {
    pthread_once(&g_once, setup);
    if (!atomic_load_explicit(&r->reg, memory_order_acquire)) {
        pthread_mutex_lock(&g_lock);
        if (!atomic_load(&r->reg)) { r->name = name; r->next = g_fns; g_fns = r; atomic_store(&r->reg, 1); }
        pthread_mutex_unlock(&g_lock);
    }
    atomic_fetch_add_explicit(&r->calls, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&g_calls, 1, memory_order_relaxed);
    if (flags & F_SETTER) atomic_fetch_add(&g_setters, 1);
    double t = now_mono();
    if (g_logpath[0] && t - g_lastlog >= 0.25) { g_lastlog = t; write_log(); }
    poll_ctl(t);
    nvmlReturn_t rc = NVML_SUCCESS;
    int dev = -1;
    if (g_globallock) pthread_mutex_lock(&g_big);
    if (g_latency_us) { struct timespec ts = {g_latency_us / 1000000, (g_latency_us % 1000000) * 1000}; nanosleep(&ts, NULL); }
    if (!(flags & F_NOINIT)) {
        for (int i = 0; i < g_nfault; i++) {
            fault_t *f = &g_fault[i];
            if (!f->fired && !strcmp(f->kind, "uninit") && active(f, 0)) { f->fired = 1; atomic_store(&g_init, 0); }
            if (!f->fired && !strcmp(f->kind, "reload") && active(f, 0)) { f->fired = 1; atomic_store(&g_init, 0); atomic_fetch_add(&g_gen, 1); }
        }
        if (atomic_load(&g_init) <= 0) { rc = NVML_ERROR_UNINITIALIZED; goto out; }
    }
    if (flags & F_DEV) {
        char *lo = (char *)g_dev, *hi = lo + sizeof g_dev, *ml = (char *)g_mig, *mh = ml + sizeof g_mig, *p = (char *)d;
        if (!((p >= lo && p < hi) || (p >= ml && p < mh)) || d->gen != atomic_load(&g_gen) % MAXGEN) { rc = NVML_ERROR_INVALID_ARGUMENT; goto out; }
        dev = d->idx;
        if (d->mig >= 0 && mig_gone(dev, d->mig)) { rc = NVML_ERROR_INVALID_ARGUMENT; goto out; }
        atomic_fetch_add_explicit(&g_device_calls[dev], 1, memory_order_relaxed);
    }
    for (int i = 0; i < g_nfault; i++) {
        fault_t *f = &g_fault[i];
        const char *k = f->kind;
        if (!strcmp(k, "garbage") || !strcmp(k, "count") || !strcmp(k, "xid") || !strcmp(k, "uninit") || !strcmp(k, "reload") ||
            !strcmp(k, "init") || !strcmp(k, "manyprocs") || !strcmp(k, "deadpids") || !strcmp(k, "grow")) continue;
        if (f->dev >= 0 && f->dev != dev) continue;
        /* per-device kinds never hit calls without a device, unless a function was named */
        if (dev < 0 && !f->pat[0] && strcmp(k, "hangall") && strcmp(k, "slow") && strcmp(k, "unknown") && strcmp(k, "err")) continue;
        if (dev < 0 && (flags & F_NOINIT) && !f->pat[0] && strcmp(k, "hangall") && strcmp(k, "slow")) continue;
        if (f->pat[0] && !pat_match(f->pat, name)) continue;
        if (!active(f, 1)) continue;
        if (!strcmp(k, "lost")) rc = NVML_ERROR_GPU_IS_LOST;
        else if (!strcmp(k, "notsupported")) rc = NVML_ERROR_NOT_SUPPORTED;
        else if (!strcmp(k, "unknown")) rc = NVML_ERROR_UNKNOWN;
        else if (!strcmp(k, "noperm")) rc = NVML_ERROR_NO_PERMISSION;
        else if (!strcmp(k, "nofunc")) rc = NVML_ERROR_FUNCTION_NOT_FOUND;
        else if (!strcmp(k, "reset")) rc = NVML_ERROR_RESET_REQUIRED;
        else if (!strcmp(k, "timeout")) rc = NVML_ERROR_TIMEOUT;
        else if (!strcmp(k, "err")) rc = f->code >= 0 ? f->code : NVML_ERROR_UNKNOWN;
        else if (!strcmp(k, "flaky")) { double p = isnan(f->value) ? 0.5 : f->value; if ((double)rand() / RAND_MAX < p) rc = NVML_ERROR_UNKNOWN; }
        else if (!strcmp(k, "hang") || !strcmp(k, "hangall")) { double s = isnan(f->value) ? 60 : f->value; double left = f->dur < 0 || f->start_calls ? s : f->start + f->dur - rel(); sleep_hard(left < s ? left : s); }
        else if (!strcmp(k, "dstate")) sleep_dstate(isnan(f->value) ? 60 : f->value);
        else if (!strcmp(k, "slow")) sleep_hard((isnan(f->value) ? 100000 : f->value) * 1e-6);
        else if (!strcmp(k, "segv")) { raise(SIGSEGV); }
        else if (!strcmp(k, "abort")) abort();
        if (rc != NVML_SUCCESS) break;
    }
    if (rc == NVML_SUCCESS && (flags & F_DEV) && dev >= g_cur_count()) rc = NVML_ERROR_GPU_IS_LOST;
out:
    if (g_globallock) pthread_mutex_unlock(&g_big);
    if (rc == NVML_SUCCESS && (flags & F_SETTER)) rc = NVML_ERROR_NO_PERMISSION;
    if (rc != NVML_SUCCESS) { atomic_fetch_add(&r->errors, 1); atomic_fetch_add(&g_errors, 1); }
    return rc;
}
#define API __attribute__((visibility("default")))
#define ENTER_(d, fl) do { static fnrec rec_; nvmlReturn_t rc_ = enter(&rec_, __func__, (nvmlDevice_t)(d), (fl)); if (rc_ != NVML_SUCCESS) return rc_; } while (0)
#define ENTER_SYS() ENTER_(NULL, 0)
#define ENTER_DEV(d) ENTER_(d, F_DEV)
#define NEED(p) do { if (!(p)) return NVML_ERROR_INVALID_ARGUMENT; } while (0)

/* ---------------------------------------------------------------------------- synthetic values */
static double wave(int dev, double period, double phase) { return sin(2 * M_PI * rel() / period + dev * 0.9 + phase); }
static double util_of(int d) { if (g_idle) return 0; if (g_copies) return 100; double u = 62 + 34 * wave(d, 24, 0) + 6 * wave(d, 7, 1); return u < 0 ? 0 : u > 100 ? 100 : u; }
static double temp_of(int d) { return wrong("warm", d) ? 88 : g_idle ? 28 + d % 5 : 44 + d % 5 + 14 * (wave(d, 60, -0.6) + 1); }
static double powr_of(int d) { return g_idle ? 72 + d % 7 : 110 + 5.4 * util_of(d); } /* watts */
static double energy_of(int d) { /* mJ since 'boot', monotonic */
    double w = 2 * M_PI / 24, t = rel();
    if (garbage("energy", d)) return 1e9 - t * 1e6;
    return 4.2e12 + d * 1e10 + 1000 * (445 * t - (184 / w) * (cos(w * t + d * 0.9) - cos(d * 0.9)));
}
static u32 smclk_of(int d) { return g_idle ? 345 : (u32)(1980 - 165 * (util_of(d) / 100.0)); }
static u64 reserved_mem(void) { return 629ULL << 20; }
static int nprocs_of(int d) {
    fault_t *f = g_nfault ? find_fault("manyprocs", NULL, d) : NULL;
    int n = f && f->code >= 0 ? f->code : g_nproc;
    if (g_nfault && find_fault("deadpids", NULL, d)) return n;
    return g_npids ? n : 0;
}
static u32 pid_of(int d, int j) {
    if (g_nfault && find_fault("deadpids", NULL, d)) return 4100000u + (u32)(d * 64 + j);
    if (garbage("pid0", d)) return 0;
    if (garbage("pidmax", d)) return 0xFFFFFFFFu;
    int base = 0; for (int i = 0; i < d && g_npids; i++) base += g_nproc;
    return g_pids[(base + j) % g_npids];
}
static u64 procmem_of(int d, int j) {
    if (garbage("memna", d)) return ~0ULL;
    if (garbage("procmem", d)) return 1ULL << 60;
    int n = nprocs_of(d); if (n < 1) n = 1;
    double share = 0.55 + 0.3 * wave(d, 40, j);
    return (u64)((double)(g_memtotal - reserved_mem()) * 0.9 * share / n / (g_migcount[d] ? MIG_MAX + 1 : 1)) & ~0x1FFFFFULL;
}
/* With MIG, process j runs on instance j modulo their number; the whole GPU (mig -1) has all of them. */
static int runs_on(int d, int mig, int j) { return mig < 0 || j % g_migcount[d] == mig; }
static u64 usedmem_of(int d, int mig) { u64 s = 0; for (int j = 0, n = nprocs_of(d); j < n; j++) { if (garbage("memna", d) || garbage("procmem", d)) return 4ULL << 30; if (runs_on(d, mig, j)) s += procmem_of(d, j); } return s + (4ULL << 20); }
static nvmlReturn_t put_str(char *out, u32 len, const char *s) {
    NEED(out);
    size_t n = strlen(s) + 1;
    if (n > len) return NVML_ERROR_INSUFFICIENT_SIZE;
    memcpy(out, s, n);
    return NVML_SUCCESS;
}

/* -------------------------------------------------------------------------------- init, system */
static nvmlReturn_t do_init(const char *name, fnrec *rec) {
    nvmlReturn_t rc = enter(rec, name, NULL, F_NOINIT);
    if (rc != NVML_SUCCESS) return rc;
    fault_t *f = g_nfault ? find_fault("init", NULL, -1) : NULL;
    if (f) { atomic_fetch_add(&rec->errors, 1); return f->code >= 0 ? f->code : NVML_ERROR_LIB_RM_VERSION_MISMATCH; }
    if (reload_now()) { atomic_fetch_add(&rec->errors, 1); return NVML_ERROR_DRIVER_NOT_LOADED; }
    atomic_fetch_add(&g_init, 1);
    return NVML_SUCCESS;
}
API nvmlReturn_t nvmlInit(void) { static fnrec r; return do_init(__func__, &r); }
API nvmlReturn_t nvmlInit_v2(void) { static fnrec r; return do_init(__func__, &r); }
API nvmlReturn_t nvmlInitWithFlags(u32 flags) { static fnrec r; (void)flags; return do_init(__func__, &r); }
API nvmlReturn_t nvmlShutdown(void) { ENTER_SYS(); atomic_fetch_sub(&g_init, 1); write_log(); return NVML_SUCCESS; }
API const char *nvmlErrorString(nvmlReturn_t r) {
    switch ((int)r) {
    case 0: return "Success"; case 1: return "Uninitialized"; case 2: return "Invalid Argument"; case 3: return "Not Supported";
    case 4: return "Insufficient Permissions"; case 5: return "Already Initialized"; case 6: return "Not Found";
    case 7: return "Insufficient Size"; case 8: return "Insufficient External Power"; case 9: return "Driver Not Loaded";
    case 10: return "Timeout"; case 11: return "Interrupt Request Issue"; case 12: return "NVML Shared Library Not Found";
    case 13: return "Function Not Found"; case 14: return "Corrupted infoROM"; case 15: return "GPU is lost";
    case 16: return "GPU requires reset"; case 17: return "GPU access blocked by the operating system";
    case 18: return "Driver/library version mismatch"; case 19: return "In use by another client"; case 20: return "Insufficient Memory";
    case 21: return "No data"; case 22: return "ECC is enabled"; case 23: return "Insufficient resources"; case 24: return "Freq not supported";
    case 25: return "Argument version mismatch"; case 26: return "Deprecated"; case 27: return "Not Ready"; case 28: return "No GPUs found";
    case 29: return "Invalid state"; default: return "Unknown Error"; }
}
API nvmlReturn_t nvmlSystemGetDriverVersion(char *v, u32 n) { ENTER_SYS(); return put_str(v, n, g_driver); }
API nvmlReturn_t nvmlSystemGetNVMLVersion(char *v, u32 n) { ENTER_SYS(); char b[96]; snprintf(b, sizeof b, "13.%s", g_driver); return put_str(v, n, b); }
API nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *v) { ENTER_SYS(); NEED(v); *v = (int)g_cuda; return NVML_SUCCESS; }
API nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *v) { ENTER_SYS(); NEED(v); *v = (int)g_cuda; return NVML_SUCCESS; }
API nvmlReturn_t nvmlSystemGetDriverBranch(nvmlSystemDriverBranchInfo_t *b, u32 n) { ENTER_SYS(); NEED(b); return put_str(b->branch, n < sizeof b->branch ? n : (u32)sizeof b->branch, "r580_00"); }
API nvmlReturn_t nvmlSystemGetProcessName(u32 pid, char *name, u32 len) {
    ENTER_SYS(); NEED(name); if (!len) return NVML_ERROR_INSUFFICIENT_SIZE;
    char p[64], b[512]; snprintf(p, sizeof p, "/proc/%u/cmdline", pid);
    int fd = open(p, O_RDONLY | O_CLOEXEC); if (fd < 0) return NVML_ERROR_NOT_FOUND;
    ssize_t k = read(fd, b, sizeof b - 1); close(fd); if (k <= 0) return NVML_ERROR_NOT_FOUND;
    b[k] = 0; snprintf(name, len, "%s", b); return NVML_SUCCESS;
}
API nvmlReturn_t nvmlDeviceGetCount(u32 *n) { ENTER_SYS(); NEED(n); *n = (u32)g_cur_count(); return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetCount_v2(u32 *n) { ENTER_SYS(); NEED(n); *n = (u32)g_cur_count(); return NVML_SUCCESS; }
static nvmlReturn_t by_index(u32 i, nvmlDevice_t *d) {
    NEED(d); if (i >= (u32)g_cur_count()) return NVML_ERROR_INVALID_ARGUMENT;
    atomic_fetch_add(&g_device_calls[i], 1);
    if (g_nfault && find_fault("lost", "", (int)i)) return NVML_ERROR_GPU_IS_LOST;
    *d = &g_dev[atomic_load(&g_gen) % MAXGEN][i]; return NVML_SUCCESS;
}
API nvmlReturn_t nvmlDeviceGetHandleByIndex(u32 i, nvmlDevice_t *d) { ENTER_SYS(); return by_index(i, d); }
API nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(u32 i, nvmlDevice_t *d) { ENTER_SYS(); return by_index(i, d); }
static void uuid_str(int i, int mig, char *b, size_t n) {
    if (garbage("uuid", i)) i = 0;
    if (mig >= 0) snprintf(b, n, "MIG-%08x-4d6f-5b6b-8c01-0000000%05x", 0xa5000000u + (u32)(i * 16 + mig), (u32)i);
    else snprintf(b, n, "GPU-%08x-4d6f-5b6b-8c01-0000000%05x", 0x6d6f636bu + (u32)i, (u32)i);
}
API nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *u, nvmlDevice_t *d) {
    ENTER_SYS(); NEED(u && d); char b[80];
    for (int i = 0; i < g_cur_count(); i++) {
        uuid_str(i, -1, b, sizeof b); if (!strcmp(b, u)) return by_index((u32)i, d);
        for (int m = 0; m < g_migcount[i]; m++) { uuid_str(i, m, b, sizeof b); if (!strcmp(b, u)) { *d = &g_mig[atomic_load(&g_gen) % MAXGEN][i][m]; return NVML_SUCCESS; } }
    }
    return NVML_ERROR_NOT_FOUND;
}
static u32 bus_of(int i) { return (u32)(i < 120 ? 0x03 + i * 2 : i); }
static nvmlReturn_t by_bus(const char *b, nvmlDevice_t *d) {
    NEED(b && d); u32 dom, bus, dv; if (sscanf(b, "%x:%x:%x", &dom, &bus, &dv) != 3) return NVML_ERROR_INVALID_ARGUMENT;
    for (int i = 0; i < g_cur_count(); i++) if (bus_of(i) == bus) return by_index((u32)i, d);
    return NVML_ERROR_NOT_FOUND;
}
API nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *b, nvmlDevice_t *d) { ENTER_SYS(); return by_bus(b, d); }
API nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *b, nvmlDevice_t *d) { ENTER_SYS(); return by_bus(b, d); }
API nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *s, nvmlDevice_t *d) { ENTER_SYS(); NEED(s && d); long long v = atoll(s) - 1652400000000LL; return v < 0 || v >= g_cur_count() ? NVML_ERROR_NOT_FOUND : by_index((u32)v, d); }

/* ------------------------------------------------------------------------------------- identity */
API nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t d, char *s, u32 n) {
    ENTER_DEV(d);
    if (garbage("name", d->idx)) return put_str(s, n, "NVIDIA \xff\xfe\xc3 H200");
    if (garbage("esc", d->idx)) return put_str(s, n, "NVIDIA \x1b]0;pwned\x07\x1b[2J\x1b[31mH200[bold red]x[/]");
    if (garbage("longname", d->idx)) { NEED(s); memset(s, 'H', n); if (n) s[n - 1] = 0; return NVML_SUCCESS; }
    if (garbage("emptyname", d->idx)) return put_str(s, n, "");
    if (d->mig >= 0) { char b[96]; snprintf(b, sizeof b, "%.70s MIG 1g.18gb", g_name); return put_str(s, n, b); }
    return put_str(s, n, g_name);
}
API nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t d, char *s, u32 n) { ENTER_DEV(d); char b[80]; uuid_str(d->idx, d->mig, b, sizeof b); return put_str(s, n, b); }
API nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t d, char *s, u32 n) { ENTER_DEV(d); char b[32]; snprintf(b, sizeof b, "%lld", 1652400000000LL + d->idx); return put_str(s, n, b); }
API nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t d, u32 *v) { ENTER_DEV(d); NEED(v); *v = (u32)d->idx; return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t d, u32 *v) { ENTER_DEV(d); NEED(v); *v = (u32)d->idx; return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetModuleId(nvmlDevice_t d, u32 *v) { ENTER_DEV(d); NEED(v); *v = (u32)d->idx + 1; return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetBoardId(nvmlDevice_t d, u32 *v) { ENTER_DEV(d); NEED(v); *v = bus_of(d->idx) << 8; return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetMultiGpuBoard(nvmlDevice_t d, u32 *v) { ENTER_DEV(d); NEED(v); *v = 0; return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetBoardPartNumber(nvmlDevice_t d, char *s, u32 n) { ENTER_DEV(d); return put_str(s, n, "692-2G520-0280-501"); }
API nvmlReturn_t nvmlDeviceGetVbiosVersion(nvmlDevice_t d, char *s, u32 n) { ENTER_DEV(d); return put_str(s, n, "96.00.BC.00.01"); }
API nvmlReturn_t nvmlDeviceGetInforomVersion(nvmlDevice_t d, nvmlInforomObject_t o, char *s, u32 n) { ENTER_DEV(d); (void)o; return put_str(s, n, "2.1"); }
API nvmlReturn_t nvmlDeviceGetInforomImageVersion(nvmlDevice_t d, char *s, u32 n) { ENTER_DEV(d); return put_str(s, n, "G520.0280.00.05"); }
API nvmlReturn_t nvmlDeviceGetGspFirmwareVersion(nvmlDevice_t d, char *s) { ENTER_DEV(d); NEED(s); strcpy(s, g_driver); return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetGspFirmwareMode(nvmlDevice_t d, u32 *e, u32 *m) { ENTER_DEV(d); NEED(e && m); *e = *m = 1; return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t d, nvmlBrandType_t *v) { ENTER_DEV(d); NEED(v); *v = 14; return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t d, nvmlDeviceArchitecture_t *v) { ENTER_DEV(d); NEED(v); *v = 9; return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t d, int *a, int *b) { ENTER_DEV(d); NEED(a && b); *a = g_cc[0]; *b = g_cc[1]; return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetNumGpuCores(nvmlDevice_t d, u32 *v) { ENTER_DEV(d); NEED(v); *v = 16896; return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetMemoryBusWidth(nvmlDevice_t d, u32 *v) { ENTER_DEV(d); NEED(v); *v = 6016; return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetGridLicensableFeatures_v4(nvmlDevice_t d, nvmlGridLicensableFeatures_t *v) { ENTER_DEV(d); NEED(v); memset(v, 0, sizeof *v); return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetBusType(nvmlDevice_t d, nvmlBusType_t *v) { ENTER_DEV(d); NEED(v); *v = 2; return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetPowerSource(nvmlDevice_t d, nvmlPowerSource_t *v) { ENTER_DEV(d); NEED(v); *v = 0; return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetIrqNum(nvmlDevice_t d, u32 *v) { ENTER_DEV(d); NEED(v); *v = 300 + (u32)d->idx; return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetVirtualizationMode(nvmlDevice_t d, nvmlGpuVirtualizationMode_t *v) { ENTER_DEV(d); NEED(v); *v = 0; return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t d, nvmlDeviceAttributes_t *a) {
    ENTER_DEV(d); NEED(a); memset(a, 0, sizeof *a); a->multiprocessorCount = d->mig >= 0 ? 16 : 132; a->sharedCopyEngineCount = d->mig >= 0 ? 1 : 3;
    a->gpuInstanceSliceCount = a->computeInstanceSliceCount = d->mig >= 0 ? 1 : 7; a->memorySizeMB = (g_memtotal >> 20) / (d->mig >= 0 ? 8 : 1); return NVML_SUCCESS;
}
static void fill_pci(int i, nvmlPciInfo_t *p) {
    memset(p, 0, sizeof *p); p->bus = bus_of(i); p->pciDeviceId = 0x233510DE; p->pciSubSystemId = 0x18BE10DE;
    snprintf(p->busIdLegacy, sizeof p->busIdLegacy, "0000:%02X:00.0", p->bus); snprintf(p->busId, sizeof p->busId, "00000000:%02X:00.0", p->bus);
}
API nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t d, nvmlPciInfo_t *p) { ENTER_DEV(d); NEED(p); fill_pci(d->idx, p); return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t d, nvmlPciInfo_t *p) { ENTER_DEV(d); NEED(p); fill_pci(d->idx, p); return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t d, nvmlPciInfo_t *p) { ENTER_DEV(d); NEED(p); fill_pci(d->idx, p); return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetPciInfoExt(nvmlDevice_t d, nvmlPciInfoExt_t *p) {
    ENTER_DEV(d); NEED(p); if (p->version != nvmlPciInfoExt_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    nvmlPciInfo_t q; fill_pci(d->idx, &q); p->domain = q.domain; p->bus = q.bus; p->device = q.device; p->pciDeviceId = q.pciDeviceId;
    p->pciSubSystemId = q.pciSubSystemId; p->baseClass = 3; p->subClass = 2; memcpy(p->busId, q.busId, sizeof p->busId); return NVML_SUCCESS;
}

/* ---------------------------------------------------------------------------------------- PCIe */
API nvmlReturn_t nvmlDeviceGetMaxPcieLinkGeneration(nvmlDevice_t d, u32 *v) { ENTER_DEV(d); NEED(v); *v = 5; return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetGpuMaxPcieLinkGeneration(nvmlDevice_t d, u32 *v) { ENTER_DEV(d); NEED(v); *v = 5; return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t d, u32 *v) { ENTER_DEV(d); NEED(v); *v = 16; return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetCurrPcieLinkGeneration(nvmlDevice_t d, u32 *v) { ENTER_DEV(d); NEED(v); *v = 5; return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_t d, u32 *v) { ENTER_DEV(d); NEED(v); *v = find_fault("narrow", NULL, d->idx) ? 8 : 16; return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetPcieLinkMaxSpeed(nvmlDevice_t d, u32 *v) { ENTER_DEV(d); NEED(v); *v = 32000; return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetPcieSpeed(nvmlDevice_t d, u32 *v) { ENTER_DEV(d); NEED(v); *v = 32000; return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetPcieReplayCounter(nvmlDevice_t d, u32 *v) { ENTER_DEV(d); NEED(v); *v = 0; return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t d, nvmlPcieUtilCounter_t c, u32 *v) { ENTER_DEV(d); NEED(v); *v = (u32)((c ? 2.1e6 : 1.2e6) * (1 + 0.8 * wave(d->idx, 15, (double)c))); return NVML_SUCCESS; }

/* -------------------------------------------------------------------------------------- clocks */
static u32 clk(int d, int t, int max) { switch (t) { case 0: case 1: return max ? 1980 : smclk_of(d); case 2: return 3201; case 3: return max ? 1545 : smclk_of(d) * 3 / 4; default: return 0; } }
API nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t d, nvmlClockType_t t, u32 *v) { ENTER_DEV(d); NEED(v && (u32)t < 4); *v = clk(d->idx, t, 0); return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t d, nvmlClockType_t t, u32 *v) { ENTER_DEV(d); NEED(v && (u32)t < 4); *v = clk(d->idx, t, 1); return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetApplicationsClock(nvmlDevice_t d, nvmlClockType_t t, u32 *v) { ENTER_DEV(d); NEED(v && (u32)t < 4); *v = clk(d->idx, t, 1); return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetDefaultApplicationsClock(nvmlDevice_t d, nvmlClockType_t t, u32 *v) { ENTER_DEV(d); NEED(v && (u32)t < 4); *v = clk(d->idx, t, 1); return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetClock(nvmlDevice_t d, nvmlClockType_t t, nvmlClockId_t id, u32 *v) { ENTER_DEV(d); NEED(v && (u32)t < 4); *v = clk(d->idx, t, id != 0); return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetMaxCustomerBoostClock(nvmlDevice_t d, nvmlClockType_t t, u32 *v) { ENTER_DEV(d); NEED(v && (u32)t < 4); *v = clk(d->idx, t, 1); return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetSupportedMemoryClocks(nvmlDevice_t d, u32 *n, u32 *v) {
    ENTER_DEV(d); NEED(n); if (*n < 2 || !v) { *n = 2; return NVML_ERROR_INSUFFICIENT_SIZE; } *n = 2; v[0] = 3201; v[1] = 2619; return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetSupportedGraphicsClocks(nvmlDevice_t d, u32 m, u32 *n, u32 *v) {
    ENTER_DEV(d); NEED(n); (void)m; u32 k = (1980 - 345) / 15 + 1; if (*n < k || !v) { *n = k; return NVML_ERROR_INSUFFICIENT_SIZE; }
    *n = k; for (u32 i = 0; i < k; i++) v[i] = 1980 - 15 * i; return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetPerformanceState(nvmlDevice_t d, nvmlPstates_t *v) { ENTER_DEV(d); NEED(v); *v = 0; return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetPowerState(nvmlDevice_t d, nvmlPstates_t *v) { ENTER_DEV(d); NEED(v); *v = 0; return NVML_SUCCESS; }
static u64 reasons(int d) { if (wrong("hot", d)) return 0x40; if (wrong("brake", d)) return 0x80; double u = util_of(d); return u < 1 ? 1 : u > 92 ? 4 : 0; }
API nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t d, u64 *v) { ENTER_DEV(d); NEED(v); *v = reasons(d->idx); return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t d, u64 *v) { ENTER_DEV(d); NEED(v); *v = reasons(d->idx); return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetSupportedClocksEventReasons(nvmlDevice_t d, u64 *v) { ENTER_DEV(d); NEED(v); *v = 0x1ff; return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetSupportedClocksThrottleReasons(nvmlDevice_t d, u64 *v) { ENTER_DEV(d); NEED(v); *v = 0x1ff; return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetViolationStatus(nvmlDevice_t d, nvmlPerfPolicyType_t t, nvmlViolationTime_t *v) { ENTER_DEV(d); NEED(v); (void)t; v->referenceTime = now_us(); v->violationTime = (u64)(rel() * 1e6); return NVML_SUCCESS; }

/* ----------------------------------------------------------------------- thermal, fan and power */
API nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t d, nvmlTemperatureSensors_t s, u32 *v) {
    ENTER_DEV(d); NEED(v && s == 0); *v = garbage("temp", d->idx) ? 0xFFFFFFFFu : (u32)temp_of(d->idx); return NVML_SUCCESS; }
#ifndef NVML_MOCK_OLD
API nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t d, nvmlTemperature_t *t) {
    ENTER_DEV(d); NEED(t); if (t->version != nvmlTemperature_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH; if ((int)t->sensorType != 0) return NVML_ERROR_INVALID_ARGUMENT;
    t->temperature = garbage("temp", d->idx) ? -2147483647 : (int)temp_of(d->idx); return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetMarginTemperature(nvmlDevice_t d, nvmlMarginTemperature_t *t) {
    ENTER_DEV(d); NEED(t); if (t->version != nvmlMarginTemperature_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH; t->marginTemperature = 87 - (int)temp_of(d->idx); return NVML_SUCCESS; }
#endif
API nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t d, nvmlTemperatureThresholds_t t, u32 *v) {
    ENTER_DEV(d); NEED(v); switch ((int)t) { case 0: *v = 92; break; case 1: *v = 89; break; case 2: *v = 95; break; case 3: *v = 87; break; default: return NVML_ERROR_NOT_SUPPORTED; } return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetFanSpeed(nvmlDevice_t d, u32 *v) { ENTER_DEV(d); NEED(v); if (g_nan_fan) return NVML_ERROR_NOT_SUPPORTED; *v = 40 + (u32)(util_of(d->idx) / 3); return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetFanSpeed_v2(nvmlDevice_t d, u32 f, u32 *v) { ENTER_DEV(d); NEED(v); (void)f; if (g_nan_fan) return NVML_ERROR_NOT_SUPPORTED; *v = 40 + (u32)(util_of(d->idx) / 3); return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetNumFans(nvmlDevice_t d, u32 *v) { ENTER_DEV(d); NEED(v); *v = g_nan_fan ? 0 : 2; return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t d, u32 *v) { ENTER_DEV(d); NEED(v); *v = garbage("power", d->idx) ? 0xFFFFFFFFu : (u32)(powr_of(d->idx) * 1000); return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetPowerManagementMode(nvmlDevice_t d, nvmlEnableState_t *v) { ENTER_DEV(d); NEED(v); *v = 1; return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t d, u32 *v) { ENTER_DEV(d); NEED(v); *v = garbage("powerlimit", d->idx) ? 0 : wrong("cap", d->idx) ? 400000 : 700000; return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t d, u32 *v) { ENTER_DEV(d); NEED(v); *v = garbage("powerlimit", d->idx) ? 0 : wrong("cap", d->idx) ? 400000 : 700000; return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetPowerManagementDefaultLimit(nvmlDevice_t d, u32 *v) { ENTER_DEV(d); NEED(v); *v = 700000; return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t d, u32 *a, u32 *b) { ENTER_DEV(d); NEED(a && b); *a = 200000; *b = 700000; return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t d, u64 *v) { ENTER_DEV(d); NEED(v); *v = (u64)energy_of(d->idx); return NVML_SUCCESS; }

/* ------------------------------------------------------------------------- memory, utilisation */
static void fill_mem(nvmlDevice_t d, u64 *total, u64 *res, u64 *fr, u64 *used) {
    u64 tot = d->mig >= 0 ? g_memtotal / 8 : g_memtotal, u = usedmem_of(d->idx, d->mig) + (wrong("leak", d->idx) ? 8ULL << 30 : 0), r = reserved_mem() / (d->mig >= 0 ? 8 : 1);
    if (u + r > tot) u = tot - r;
    if (garbage("mem", d->idx)) { *total = tot; *res = r; *used = tot * 3; *fr = ~0ULL; return; }
    if (garbage("zeromem", d->idx)) { *total = *res = *used = *fr = 0; return; }
    *total = tot; *res = r; *used = u; *fr = tot - u - r;
}
API nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t d, nvmlMemory_t *m) { ENTER_DEV(d); NEED(m); u64 t, r, f, u; fill_mem(d, &t, &r, &f, &u); m->total = t; m->free = f; m->used = u + r; return NVML_SUCCESS; }
#ifndef NVML_MOCK_OLD
API nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t d, nvmlMemory_v2_t *m) {
    ENTER_DEV(d); NEED(m); if (m->version != nvmlMemory_v2) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    u64 t, r, f, u; fill_mem(d, &t, &r, &f, &u); m->total = t; m->reserved = r; m->free = f; m->used = u; return NVML_SUCCESS; }
#endif
API nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t d, nvmlBAR1Memory_t *m) { ENTER_DEV(d); NEED(m); m->bar1Total = 262144ULL << 20; m->bar1Used = 5ULL << 20; m->bar1Free = m->bar1Total - m->bar1Used; return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t d, nvmlUtilization_t *u) {
    ENTER_DEV(d); NEED(u); if (d->mig >= 0 || g_migcount[d->idx]) return NVML_ERROR_NOT_SUPPORTED;
    u->gpu = (u32)util_of(d->idx); u->memory = (u32)(util_of(d->idx) * 0.55); if (garbage("util", d->idx)) u->gpu = u->memory = 0xFFFFFFFFu; return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetEncoderUtilization(nvmlDevice_t d, u32 *v, u32 *p) { ENTER_DEV(d); NEED(v && p); *v = 0; *p = 167000; return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetDecoderUtilization(nvmlDevice_t d, u32 *v, u32 *p) { ENTER_DEV(d); NEED(v && p); *v = (u32)(8 + 8 * wave(d->idx, 19, 2)); *p = 167000; return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetJpgUtilization(nvmlDevice_t d, u32 *v, u32 *p) { ENTER_DEV(d); NEED(v && p); *v = 0; *p = 167000; return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetOfaUtilization(nvmlDevice_t d, u32 *v, u32 *p) { ENTER_DEV(d); NEED(v && p); *v = 0; *p = 167000; return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetEncoderStats(nvmlDevice_t d, u32 *a, u32 *b, u32 *c) { ENTER_DEV(d); NEED(a && b && c); *a = *b = *c = 0; return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetSamples(nvmlDevice_t d, nvmlSamplingType_t t, u64 last, nvmlValueType_t *vt, u32 *n, nvmlSample_t *s) {
    ENTER_DEV(d); NEED(vt && n); *vt = NVML_VALUE_TYPE_UNSIGNED_INT;
    const u32 cap = 120; if (!s) { *n = cap; return NVML_SUCCESS; }
    u64 now = now_us(), step = 20000; u32 k = 0; now -= now % step;
    for (u32 i = 0; i < cap && k < *n; i++) {
        u64 ts = now - (u64)(cap - 1 - i) * step; if (ts <= last) continue;
        u32 v = t == 0 ? (u32)(powr_of(d->idx) * 1000) : t == 1 ? (u32)util_of(d->idx) : t == 2 ? (u32)(util_of(d->idx) * .55) : t == 5 ? smclk_of(d->idx) : t == 6 ? 3201 : 0;
        s[k].timeStamp = ts; s[k].sampleValue.ullVal = 0; s[k].sampleValue.uiVal = garbage("util", d->idx) ? 0xFFFFFFFFu : v; k++;
    }
    *n = k; return k ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

/* ------------------------------------------------------------------------------------ processes */
static int proc_count(nvmlDevice_t d, int kind) { /* kind: 0 compute, 1 graphics, 2 mps */ int n = nprocs_of(d->idx); if (kind == 2) return 0; int gfx = getenv("NVML_MOCK_GRAPHICS") ? n / 4 : 0; return kind ? gfx : n - gfx; }
#define RUNNING(FN, T, KIND, EXTRA)                                                                     \
    API nvmlReturn_t FN(nvmlDevice_t d, u32 *n, T *a) {                                                 \
        ENTER_DEV(d); NEED(n);                                                                          \
        u32 have = (u32)proc_count(d, KIND), off = KIND ? (u32)proc_count(d, 0) : 0;                    \
        if (g_nfault && find_fault("grow", NULL, d->idx) && have) { *n = *n + 1; return NVML_ERROR_INSUFFICIENT_SIZE; } \
        u32 own = 0; for (u32 i = 0; i < have; i++) own += (u32)runs_on(d->idx, d->mig, (int)(off + i)); \
        if (*n < own || (own && !a)) { *n = own; return NVML_ERROR_INSUFFICIENT_SIZE; }                 \
        for (u32 i = 0, j = 0; i < have; i++) { int p = (int)(off + i); if (!runs_on(d->idx, d->mig, p)) continue; memset(&a[j], 0, sizeof a[j]); a[j].pid = pid_of(d->idx, p); a[j].usedGpuMemory = procmem_of(d->idx, p); EXTRA; j++; } \
        *n = own; return NVML_SUCCESS;                                                                  \
    }
#define GI a[j].gpuInstanceId = g_migcount[d->idx] ? 7 + (u32)(p % g_migcount[d->idx]) : 0xFFFFFFFFu; a[j].computeInstanceId = g_migcount[d->idx] ? 0 : 0xFFFFFFFFu
RUNNING(nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfo_v1_t, 0, (void)0)
RUNNING(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t, 1, (void)0)
RUNNING(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfo_v1_t, 2, (void)0)
#ifndef NVML_MOCK_OLD
RUNNING(nvmlDeviceGetComputeRunningProcesses_v2, nvmlProcessInfo_v2_t, 0, GI)
RUNNING(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_v2_t, 1, GI)
RUNNING(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_v2_t, 2, GI)
RUNNING(nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_t, 0, GI)
RUNNING(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_t, 1, GI)
RUNNING(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_t, 2, GI)
API nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t d, nvmlProcessDetailList_t *l) {
    ENTER_DEV(d); NEED(l); if (l->version != nvmlProcessDetailList_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    u32 have = (u32)proc_count(d, l->mode == 1 ? 1 : l->mode == 2 ? 2 : 0);
    if (l->numProcArrayEntries < have || !l->procArray) { l->numProcArrayEntries = have; return have ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS; }
    for (u32 j = 0; j < have; j++) { nvmlProcessDetail_v1_t *p = &l->procArray[j]; memset(p, 0, sizeof *p); p->pid = pid_of(d->idx, (int)j); p->usedGpuMemory = procmem_of(d->idx, (int)j); p->gpuInstanceId = p->computeInstanceId = 0xFFFFFFFFu; }
    l->numProcArrayEntries = have; return NVML_SUCCESS;
}
API nvmlReturn_t nvmlDeviceGetConfComputeMemSizeInfo(nvmlDevice_t d, nvmlConfComputeMemSizeInfo_t *m) { ENTER_DEV(d); NEED(m); m->protectedMemSizeKib = 0; m->unprotectedMemSizeKib = g_memtotal >> 10; return NVML_SUCCESS; }
#endif
static u32 psm(int d, int j, int n) { return (u32)(util_of(d) / (n ? n : 1) * (1 + 0.5 * wave(d, 11, j)) / 1.5); }
API nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t d, nvmlProcessUtilizationSample_t *s, u32 *n, u64 last) {
    ENTER_DEV(d); NEED(n); u32 have = (u32)nprocs_of(d->idx); if (!have) { *n = 0; return NVML_ERROR_NOT_FOUND; }
    u64 ts = now_us(); ts -= ts % 166667; if (ts <= last) { *n = 0; return NVML_ERROR_NOT_FOUND; }
    if (!s || *n < have) { *n = have; return NVML_ERROR_INSUFFICIENT_SIZE; }
    int bad = garbage("procutil", d->idx);
    for (u32 j = 0; j < have; j++) { memset(&s[j], 0, sizeof s[j]); s[j].pid = pid_of(d->idx, (int)j); s[j].timeStamp = bad ? ts + 999999999999ULL : ts; s[j].smUtil = bad ? 0xFFFFFFFFu : psm(d->idx, (int)j, (int)have); s[j].memUtil = bad ? 0xFFFFFFFFu : s[j].smUtil / 2; }
    *n = have; return NVML_SUCCESS;
}
API nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t d, nvmlProcessesUtilizationInfo_t *p) {
    ENTER_DEV(d); NEED(p); if (p->version != nvmlProcessesUtilizationInfo_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    u32 have = (u32)nprocs_of(d->idx); if (!have) { p->processSamplesCount = 0; return NVML_ERROR_NOT_FOUND; }
    if (!p->procUtilArray || p->processSamplesCount < have) { p->processSamplesCount = have; return NVML_ERROR_INSUFFICIENT_SIZE; }
    u64 ts = now_us(); ts -= ts % 166667;
    for (u32 j = 0; j < have; j++) { nvmlProcessUtilizationInfo_v1_t *s = &p->procUtilArray[j]; memset(s, 0, sizeof *s); s->pid = pid_of(d->idx, (int)j); s->timeStamp = ts; s->smUtil = psm(d->idx, (int)j, (int)have); s->memUtil = s->smUtil / 2; }
    p->processSamplesCount = have; return NVML_SUCCESS;
}
API nvmlReturn_t nvmlDeviceGetAccountingMode(nvmlDevice_t d, nvmlEnableState_t *v) { ENTER_DEV(d); NEED(v); *v = 0; return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetAccountingBufferSize(nvmlDevice_t d, u32 *v) { ENTER_DEV(d); NEED(v); *v = 4000; return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetAccountingPids(nvmlDevice_t d, u32 *n, u32 *p) { ENTER_DEV(d); NEED(n); (void)p; *n = 0; return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t d, u32 pid, nvmlAccountingStats_t *s) { ENTER_DEV(d); (void)pid; (void)s; return NVML_ERROR_NOT_FOUND; }

/* -------------------------------------------------------------------------------- modes, ECC */
API nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t d, nvmlEnableState_t *v) { ENTER_DEV(d); NEED(v); *v = !wrong("persistence", d->idx); return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetDisplayMode(nvmlDevice_t d, nvmlEnableState_t *v) { ENTER_DEV(d); NEED(v); *v = 0; return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetDisplayActive(nvmlDevice_t d, nvmlEnableState_t *v) { ENTER_DEV(d); NEED(v); *v = 0; return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t d, nvmlComputeMode_t *v) { ENTER_DEV(d); NEED(v); *v = wrong("prohibited", d->idx) ? 2 : wrong("exclusive", d->idx) ? 3 : 0; return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetDriverModel(nvmlDevice_t d, nvmlDriverModel_t *a, nvmlDriverModel_t *b) { ENTER_DEV(d); (void)a; (void)b; return NVML_ERROR_NOT_SUPPORTED; }
#ifndef NVML_MOCK_OLD
API nvmlReturn_t nvmlDeviceGetDriverModel_v2(nvmlDevice_t d, nvmlDriverModel_t *a, nvmlDriverModel_t *b) { ENTER_DEV(d); (void)a; (void)b; return NVML_ERROR_NOT_SUPPORTED; }
#endif
API nvmlReturn_t nvmlDeviceGetGpuOperationMode(nvmlDevice_t d, nvmlGpuOperationMode_t *a, nvmlGpuOperationMode_t *b) { ENTER_DEV(d); (void)a; (void)b; return NVML_ERROR_NOT_SUPPORTED; }
API nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t d, nvmlEnableState_t *a, nvmlEnableState_t *b) { ENTER_DEV(d); NEED(a && b); *a = !wrong("ecc", d->idx); *b = *a && !wrong("eccpending", d->idx); return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetDefaultEccMode(nvmlDevice_t d, nvmlEnableState_t *a) { ENTER_DEV(d); NEED(a); *a = 1; return NVML_SUCCESS; }
static u64 eccn(int d, int unc) { fault_t *f = g_nfault ? find_fault("garbage", unc ? "eccdbe" : "eccsbe", d) : NULL; return f ? (u64)(rel() - f->start) + 1 : 0; }
API nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t d, nvmlMemoryErrorType_t t, nvmlEccCounterType_t c, u64 *v) { ENTER_DEV(d); NEED(v); (void)c; *v = eccn(d->idx, t == 1); return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetDetailedEccErrors(nvmlDevice_t d, nvmlMemoryErrorType_t t, nvmlEccCounterType_t c, nvmlEccErrorCounts_t *v) { ENTER_DEV(d); NEED(v); (void)c; memset(v, 0, sizeof *v); v->deviceMemory = eccn(d->idx, t == 1); return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t d, nvmlMemoryErrorType_t t, nvmlEccCounterType_t c, nvmlMemoryLocation_t l, u64 *v) { ENTER_DEV(d); NEED(v); (void)c; *v = l == 2 ? eccn(d->idx, t == 1) : 0; return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetRetiredPages(nvmlDevice_t d, nvmlPageRetirementCause_t c, u32 *n, u64 *a) { ENTER_DEV(d); (void)c; (void)n; (void)a; return NVML_ERROR_NOT_SUPPORTED; }
API nvmlReturn_t nvmlDeviceGetRetiredPages_v2(nvmlDevice_t d, nvmlPageRetirementCause_t c, u32 *n, u64 *a, u64 *t) { ENTER_DEV(d); (void)c; (void)n; (void)a; (void)t; return NVML_ERROR_NOT_SUPPORTED; }
API nvmlReturn_t nvmlDeviceGetRetiredPagesPendingStatus(nvmlDevice_t d, nvmlEnableState_t *v) { ENTER_DEV(d); (void)v; return NVML_ERROR_NOT_SUPPORTED; }
API nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t d, u32 *a, u32 *b, u32 *c, u32 *e) { ENTER_DEV(d); NEED(a && b && c && e); *a = *b = 0; *c = (u32)wrong("rows", d->idx); *e = (u32)wrong("rowfail", d->idx); return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetRowRemapperHistogram(nvmlDevice_t d, nvmlRowRemapperHistogramValues_t *h) { ENTER_DEV(d); NEED(h); memset(h, 0, sizeof *h); h->max = 3072; return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetAPIRestriction(nvmlDevice_t d, nvmlRestrictedAPI_t t, nvmlEnableState_t *v) { ENTER_DEV(d); NEED(v); (void)t; *v = 1; return NVML_SUCCESS; }

/* ---------------------------------------------------------------------------- topology, NVLink */
API nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t a, nvmlDevice_t b, nvmlGpuTopologyLevel_t *v) { ENTER_DEV(a); NEED(v && b); int n = g_cur_count(), h = n > 1 ? (n + 1) / 2 : 1; *v = a->idx == b->idx ? 0 : a->idx / h == b->idx / h ? (g_nvlink ? 40 : 10) : 50; return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t a, nvmlDevice_t b, nvmlGpuP2PCapsIndex_t i, nvmlGpuP2PStatus_t *v) { ENTER_DEV(a); NEED(v && b); (void)i; int h = (g_cur_count() + 1) / 2; *v = !g_nvlink && a->idx / h != b->idx / h; return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceOnSameBoard(nvmlDevice_t a, nvmlDevice_t b, int *v) { ENTER_DEV(a); NEED(v && b); *v = a->idx == b->idx; return NVML_SUCCESS; }
static nvmlReturn_t aff(nvmlDevice_t d, u32 n, unsigned long *s) { NEED(s && n); memset(s, 0, n * sizeof *s); long c = sysconf(_SC_NPROCESSORS_ONLN); int ngpu = g_cur_count(), half = d->idx >= (ngpu + 1) / 2; long lo = half ? c / 2 : 0, hi = half ? c : (c + 1) / 2; for (long i = lo; i < hi && (u64)i / 64 < n; i++) s[i / 64] |= 1UL << (i % 64); return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t d, u32 n, unsigned long *s) { ENTER_DEV(d); return aff(d, n, s); }
API nvmlReturn_t nvmlDeviceGetCpuAffinityWithinScope(nvmlDevice_t d, u32 n, unsigned long *s, nvmlAffinityScope_t sc) { ENTER_DEV(d); (void)sc; return aff(d, n, s); }
API nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t d, u32 n, unsigned long *s, nvmlAffinityScope_t sc) { ENTER_DEV(d); NEED(s && n); (void)sc; memset(s, 0, n * sizeof *s); s[0] = 1UL << (d->idx >= (g_cur_count() + 1) / 2); return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetNumaNodeId(nvmlDevice_t d, u32 *v) { ENTER_DEV(d); (void)v; return NVML_ERROR_NOT_SUPPORTED; }
API nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t d, u32 l, nvmlEnableState_t *v) { ENTER_DEV(d); NEED(v && l < 18); *v = 1; return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t d, u32 l, u32 *v) { ENTER_DEV(d); NEED(v && l < 18); *v = 4; return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetNvLinkCapability(nvmlDevice_t d, u32 l, nvmlNvLinkCapability_t c, u32 *v) { ENTER_DEV(d); NEED(v && l < 18); (void)c; *v = 1; return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetNvLinkErrorCounter(nvmlDevice_t d, u32 l, nvmlNvLinkErrorCounter_t c, u64 *v) { ENTER_DEV(d); NEED(v && l < 18); (void)c; *v = 0; return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t d, u32 l, nvmlPciInfo_t *p) { ENTER_DEV(d); NEED(p && l < 18); if (!g_nvlink) return NVML_ERROR_NOT_SUPPORTED; fill_pci(200 + (int)l % 4, p); return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t d, u32 l, nvmlIntNvLinkDeviceType_t *v) { ENTER_DEV(d); NEED(v && l < 18); *v = 2; return NVML_SUCCESS; }

/* ------------------------------------------------------------------------------- field values */
static const char *fv_category(u32 id) { /* which part of the machine a field belongs to, for faults */
    if (id <= 59) return "ecc";
    if (id == 82) return "temp";
    if (id >= 138 && id <= 141) return "linkrate";
    if (id == 90 || id == 91 || (id >= 164 && id <= 170)) return "nvlink";
    if (id >= 185 && id <= 192) return "power";
    return "";
}
static double link_share(int d, u32 link) { return d % 4 == 3 ? 0 : 1 + 0.05 * link; } /* every fourth GPU sends nothing */
static void fv(nvmlFieldValue_t *f, int d) {
    f->timestamp = (long long)now_us(); f->latencyUsec = 3; f->nvmlReturn = NVML_SUCCESS; f->value.ullVal = 0; f->valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
    double t = rel();
    u32 id = f->fieldId;
    if (id >= 1 && id <= 2) { f->value.uiVal = 1; return; }
    if (id >= 3 && id <= 28) { f->valueType = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG; f->value.ullVal = id % 2 ? eccn(d, 0) : eccn(d, 1); return; }
    if (id >= 32 && id <= 59) { f->valueType = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG; return; }
    if (!g_nvlink && (id == 91 || (id >= 138 && id <= 141) || (id >= 161 && id <= 165))) { f->nvmlReturn = NVML_ERROR_NOT_SUPPORTED; return; }
    fault_t *down = id == 164 || id == 165 ? find_fault("linkdown", NULL, d) : NULL;
    if (down && f->scopeId == (u32)down->value) return;
    switch (id) {
    case 29: case 30: case 31: if (g_cc[0] >= 8) f->nvmlReturn = NVML_ERROR_NOT_SUPPORTED; else f->value.uiVal = id == 31 ? (u32)wrong("pages", d) : 31 - id; return; /* RETIRED_* */
    case 82: f->value.uiVal = (u32)(temp_of(d) + 8); return;                                            /* MEMORY_TEMP */
    case 83: case 191: f->valueType = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG; f->value.ullVal = (u64)energy_of(d); return;
    case 90: f->nvmlReturn = NVML_ERROR_NOT_SUPPORTED; return;                                          /* as an H200 does */
    case 164: if (f->scopeId >= 18) f->nvmlReturn = NVML_ERROR_INVALID_ARGUMENT; else f->value.uiVal = 26562; return; /* MB/s of a link */
    case 91: f->value.uiVal = 18; return;                                                               /* NVLINK_LINK_COUNT */
    case 94: case 95: f->value.uiVal = 0; return;
    case 138: case 140: f->valueType = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG; f->value.ullVal = (u64)(t * 9e6 * link_share(d, f->scopeId)) + 1000000000ULL; return; /* KiB of a link */
    case 139: case 141: f->valueType = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG; f->value.ullVal = (u64)(t * 8e6 * link_share(d, f->scopeId)) + 1000000000ULL; return;
    case 142: case 143: case 144: case 145: f->value.uiVal = 0; return;                                 /* REMAPPED_* */
    case 161: case 162: case 163: f->value.uiVal = 0; if (f->scopeId >= 18) f->nvmlReturn = NVML_ERROR_INVALID_ARGUMENT; return; /* errors of a link */
    case 165: if (f->scopeId >= 18) f->nvmlReturn = NVML_ERROR_INVALID_ARGUMENT; else f->value.uiVal = 1; return;
    case 185: case 186: f->value.uiVal = (u32)(powr_of(d) * 1000); return;                              /* POWER_AVERAGE / INSTANT */
    case 187: f->value.uiVal = 200000; return; case 188: case 189: case 190: case 192: f->value.uiVal = 700000; return;
    case 193: f->valueType = NVML_VALUE_TYPE_SIGNED_LONG_LONG; f->value.sllVal = -5; return;
    case 194: f->valueType = NVML_VALUE_TYPE_SIGNED_LONG_LONG; f->value.sllVal = -2; return;
    case 196: f->valueType = NVML_VALUE_TYPE_SIGNED_LONG_LONG; f->value.sllVal = 0; return;
    case 197: case 198: f->valueType = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG; f->value.ullVal = (u64)(t * 1.5e9); return;
    case 226: case 227: case 230: f->value.uiVal = 0; return;
    default: f->nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
    }
}
API nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t d, int n, nvmlFieldValue_t *v) {
    ENTER_DEV(d); NEED(v && n > 0);
    for (int i = 0; i < n; i++) {
        fv(&v[i], d->idx);
        if (g_nfault && find_fault("notsupported", fv_category(v[i].fieldId), d->idx)) v[i].nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
        if (garbage("fields", d->idx)) v[i].value.ullVal = ~0ULL;
        if (garbage("fieldtype", d->idx)) v[i].valueType = 99;
    }
    return NVML_SUCCESS;
}

/* ----------------------------------------------------------------------------------------- GPM */
typedef struct { int idx; double taken; } *nvmlGpmSample_t;
typedef struct { u32 metricId; nvmlReturn_t nvmlReturn; double value; struct { char *a, *b, *c; } info; } nvmlGpmMetric_t;
typedef struct { u32 version, numMetrics; nvmlGpmSample_t sample1, sample2; nvmlGpmMetric_t metrics[333]; } nvmlGpmMetricsGet_t;
typedef struct { u32 version, isSupportedDevice; } nvmlGpmSupport_t;
_Static_assert(sizeof(nvmlGpmMetric_t) == 40, "gpm metric");
API nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t d, nvmlGpmSupport_t *s) { ENTER_DEV(d); NEED(s && s->version == 1); s->isSupportedDevice = (u32)g_gpm; return NVML_SUCCESS; }
API nvmlReturn_t nvmlGpmSampleAlloc(nvmlGpmSample_t *s) { ENTER_SYS(); NEED(s); *s = calloc(1, sizeof **s); (*s)->idx = -1; atomic_fetch_add(&g_gpm_samples, 1); return NVML_SUCCESS; }
API nvmlReturn_t nvmlGpmSampleFree(nvmlGpmSample_t s) { ENTER_SYS(); NEED(s); free(s); atomic_fetch_sub(&g_gpm_samples, 1); return NVML_SUCCESS; }
API nvmlReturn_t nvmlGpmSampleGet(nvmlDevice_t d, nvmlGpmSample_t s) { ENTER_DEV(d); NEED(s); if (!g_gpm) return NVML_ERROR_NOT_SUPPORTED; s->idx = d->idx; s->taken = now_mono(); return NVML_SUCCESS; }
API nvmlReturn_t nvmlGpmMigSampleGet(nvmlDevice_t d, u32 instance, nvmlGpmSample_t s) { ENTER_DEV(d); NEED(s); if (!g_gpm) return NVML_ERROR_NOT_SUPPORTED; NEED(instance >= 7 && (int)instance < 7 + g_migcount[d->idx]); s->idx = d->idx; s->taken = now_mono(); return NVML_SUCCESS; }
static double gpm(u32 id, int d) { /* an H200 under a bf16 matmul, scaled by utilisation, or under copies from the host */
    double u = util_of(d) / 100;
    if (g_copies) return id == 10 ? 1.15 : id == 21 ? 56500 : 0;
    switch (id) {
    case 1: return 97 * u; case 2: return 95.5 * u; case 3: return 14 * u; case 5: return 92.7 * u; case 10: return 17 * u;
    case 12: return 3 * u; case 20: return 40 * u; case 21: return 75 * u; case 60: return 2000 * u; case 61: return 3000 * u;
    default: return 0;
    }
}
API nvmlReturn_t nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *g) {
    ENTER_SYS(); NEED(g && g->version == 1 && g->sample1 && g->sample2 && g->numMetrics <= 333);
    int d = g->sample1->idx; NEED(d >= 0 && d == g->sample2->idx && g->sample2->taken - g->sample1->taken >= 0.1);
    for (u32 i = 0; i < g->numMetrics; i++) {
        g->metrics[i].nvmlReturn = find_fault("notsupported", "gpmmetric", d) && g->metrics[i].metricId >= 60 ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
        g->metrics[i].value = garbage("gpm", d) ? NAN : gpm(g->metrics[i].metricId, d);
    }
    return NVML_SUCCESS;
}

/* ----------------------------------------------------------------------------------------- MIG */
API nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t d, u32 *a, u32 *b) { ENTER_DEV(d); NEED(a && b); *a = g_migcount[d->idx] > 0; *b = *a || wrong("migpending", d->idx); return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t d, u32 *v) { ENTER_DEV(d); NEED(v); *v = MIG_MAX; return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t d, u32 *v) { ENTER_DEV(d); NEED(v); *v = d->mig >= 0; return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t d, u32 *v) { ENTER_DEV(d); NEED(v); if (d->mig < 0) return NVML_ERROR_NOT_SUPPORTED; *v = 7 + (u32)d->mig; return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t d, u32 *v) { ENTER_DEV(d); NEED(v); if (d->mig < 0) return NVML_ERROR_NOT_SUPPORTED; *v = 0; return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t d, u32 i, nvmlDevice_t *m) { ENTER_DEV(d); NEED(m); if (i >= MIG_MAX) return NVML_ERROR_INVALID_ARGUMENT; if ((int)i >= g_migcount[d->idx] || mig_gone(d->idx, (int)i)) return NVML_ERROR_NOT_FOUND; *m = &g_mig[d->gen][d->idx][i]; return NVML_SUCCESS; }
API nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t m, nvmlDevice_t *d) { ENTER_DEV(m); NEED(d); *d = &g_dev[m->gen][m->idx]; return NVML_SUCCESS; }

#include "events.h"
#include "stubs.h" /* every other exported name: NOT_SUPPORTED, or NO_PERMISSION for a setter */
