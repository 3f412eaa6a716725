/** Prints each figure with its limit. The limits are for 1,000 clusters with 126 records each in one process. */
import { progress } from '../figures.ts'
import type { BenchOptions } from './options.ts'
import type { Figures } from './stages.ts'

const MAX_OF_FLOOR = 2.5

/** Undefined: the figure has no limit and is only printed. */
export const LIMITS: Readonly<Record<string, number | undefined>> = {
  fanoutP50Ms: undefined,
  fanoutP99Ms: 100,
  burstP99Ms: 300,
  failoverSeconds: 10,
  restartSeconds: 12,
  coldStartSeconds: 60,
  snapshotCpuMsPerMb: 4,
  joinCpuMs: undefined,
  idleBytesPerMember: undefined,
  brokerRssMb: 300,
  recordsSentAgain: 0,
  bytesPer100Endpoints: 300,
  tlsFloorP99Ms: undefined,
  etcdWatchP99Ms: undefined,
  fanoutOfTlsFloor: MAX_OF_FLOOR,
}

export function report({ clusters, services, store, replicas }: BenchOptions, measured: Figures): void {
  const { fanoutP99Ms, tlsFloorP99Ms } = measured
  const ratio =
    fanoutP99Ms === undefined || tlsFloorP99Ms === undefined
      ? {}
      : { fanoutOfTlsFloor: Number((fanoutP99Ms / tlsFloorP99Ms).toFixed(2)) }
  const figures: Figures = { ...measured, ...ratio }
  const limits = Object.fromEntries(Object.entries(LIMITS).filter(([key]) => figures[key] !== undefined))
  progress(
    { clusters, services, replicas, onEtcd: Number(store === 'etcd'), ...figures, limits },
    [
      `${clusters} clusters with ${services} services each, ${replicas} broker process${replicas === 1 ? '' : 'es'} on ${store}`,
      ...Object.entries(figures).map(([key, value]) => line(key, value)),
    ].join('\n'),
  )
}

function line(key: string, value: number): string {
  const limit = LIMITS[key]
  const finding = limit === undefined ? '' : `  at most ${limit}: ${value <= limit ? 'kept' : 'MISSED'}`
  return `  ${key.padEnd(28)}${String(value).padStart(10)}${finding}`
}
