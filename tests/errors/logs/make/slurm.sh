# Jobs of Slurm 22.05 on one node: a controller and a node daemon on this host, both with the host name node01.
. "$(dirname "$0")/lib.sh"
[ "$(hostname)" = node01 ] || exec unshare -u -m bash -c 'hostname node01; exec bash "$0"' "$0"
S=/tmp/slurm; rm -rf $S; mkdir -p $S/spool $S/state /run/munge /var/log/munge /var/lib/munge; chown -R munge /run/munge /var/log/munge /etc/munge /var/lib/munge
cat > /etc/slurm/slurm.conf <<C
ClusterName=lab
SlurmctldHost=node01(127.0.0.1)
SlurmUser=root
StateSaveLocation=$S/state
SlurmdSpoolDir=$S/spool
SlurmctldPidFile=$S/ctld.pid
SlurmdPidFile=$S/d.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=1
JobAcctGatherParams=OverMemoryKill
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
KillWait=5
ReturnToService=2
NodeName=node01 NodeAddr=127.0.0.1 CPUs=2 RealMemory=9000 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=60 State=UP
C
setpriv --reuid munge --regid munge --init-groups munged --force; slurmctld; slurmd; sleep 5; sinfo
# Arguments: folder, name, further options of sbatch; the lines of the job script on standard input.
slurm() {
  local folder=$1 name=$2; shift 2; { echo '#!/bin/bash'; cat; } > $WORK/job.sh; chown user $WORK/job.sh
  (cd $WORK && setpriv --reuid user --regid user --init-groups env -i HOME=/home/user USER=user LANG=C.UTF-8 OMP_NUM_THREADS=1 \
    PATH=/home/user/venv/bin:/usr/bin:/bin timeout 200 sbatch --wait -J train -n 1 -o slurm.out "$@" job.sh)
  sleep 1; cp $WORK/slurm.out "$LOGS/$folder/$name.log"; rm $WORK/slurm.out; wc "$LOGS/$folder/$name.log"
}
fresh; slurm failed slurm-time-limit --time=1 <<'P'
echo "job $SLURM_JOB_ID on $SLURM_JOB_NODELIST"
srun python train.py --epochs 500
P
fresh; sub train.py 's/^( +)optimizer.step\(\)/&\n\1history.append(torch.ones(12_000_000))/' 's/^log = /history = []\n&/'
slurm failed slurm-memory --time=5 --mem=1500M <<'P'
srun python train.py
P
fresh; sub ddp.py 's/^( +)loss = F.cross/\1if rank == 1 and step == 13:\n\1    raise ValueError(f"bad label -1 in shard 13 of rank {rank}")\n&/'
slurm failed slurm-task-fails --time=5 -n 2 --overcommit <<'P'
export MASTER_ADDR=127.0.0.1 MASTER_PORT=29650 WORLD_SIZE=2
srun --kill-on-bad-exit=1 bash -c 'RANK=$SLURM_PROCID exec python ddp.py'
P
fresh; (sleep 30; setpriv --reuid user --regid user --init-groups scancel -n train) & slurm failed slurm-cancelled --time=5 <<'P'
srun python train.py --epochs 500
P
fresh; slurm failed slurm-script-error --time=5 <<'P'
module load cuda/12.8
source activate torch-env
cd /scratch/user/projects/shapes && srun python train.py --epochs 1
P
fresh; slurm healthy slurm-finished --time=5 <<'P'
echo "job $SLURM_JOB_ID on $SLURM_JOB_NODELIST"
module load cuda/12.8 || echo "no modules here, going on"
srun python train.py --epochs 2
echo "finished at $(date)"
P
kill $(cat $S/d.pid $S/ctld.pid) $(cat /run/munge/munged.pid)
