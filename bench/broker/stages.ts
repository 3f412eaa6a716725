/** The measured stages, one after the other, with one broker and the same members. */
import { setTimeout as sleep } from 'node:timers/promises'
import { round } from '../figures.ts'
import type { Brokers } from './brokers.ts'
import type { Generators } from './generators.ts'
import { slowed } from './measured-process.ts'
import type { BenchOptions } from './options.ts'
import { measureEtcd, measureFloor, sharesOf } from './peers/measure-peers.ts'

export interface Bench {
  readonly options: BenchOptions
  readonly broker: Brokers
  readonly generators: Generators
}

export type Figures = Readonly<Record<string, number>>

const MB = 1_000_000
const CHANGES = 100
const EVERY_MS = 250
export const PER_SECOND = 100
export const PUBLISHERS = 20
const SNAPSHOTS = 20
const LARGE_SLICES = 30
const IN_SYNC_MS = 330_000

/** All members join and publish their records. */
export async function setUp({ options, broker, generators }: Bench): Promise<Figures> {
  const { clusters } = options
  const secrets = await broker.secrets(clusters)
  const asks = secrets.map((secret, i) => ({ cluster: `c${String(i).padStart(4, '0')}`, index: i, secret }))
  const before = broker.cpuMs
  const begun = performance.now()
  const shares = sharesOf(clusters, generators.count)
  await Promise.all(shares.map((share, i) => generators.call(i, 'fleet', 'join', { asks: asks.splice(0, share) })))
  const joinCpuMs = (broker.cpuMs - before) / clusters
  note(`${clusters} joined in ${Math.round(performance.now() - begun)} ms`)
  const publishing = performance.now()
  await generators.all('fleet', 'start', { fresh: true, old: false, streams: 'publish' })
  await allOf(generators, clusters, 'published')
  const published = performance.now() - publishing
  note(`published in ${Math.round(published)} ms`)
  await generators.all('fleet', 'stop')
  return { joinCpuMs: round(joinCpuMs), publishSeconds: round(published / 1000, 1) }
}

/** All members connect at once without earlier state. */
export async function coldStart({ options, broker, generators }: Bench): Promise<Figures> {
  await sleep(1000)
  await generators.all('fleet', 'zero')
  const before = broker.cpuMs
  const begun = performance.now()
  await generators.all('fleet', 'start', { fresh: true, old: false, streams: 'both' })
  await allOf(generators, options.clusters, 'inSync')
  const tookMs = performance.now() - begun
  const { eventsOfOne, messageBytes, failedConnects, sentAway } = await generators.state()
  return {
    coldStartSeconds: round(tookMs / 1000, 1),
    coldStartCpuSeconds: round((broker.cpuMs - before) / 1000, 1),
    coldStartFailedConnects: failedConnects,
    coldStartSentAway: sentAway,
    recordsPerMember: eventsOfOne,
    snapshotWireMb: round(messageBytes / options.clusters / MB),
  }
}

/** A few members read one more snapshot each, without handshakes: members of this release, and of the previous one. */
export async function snapshots({ broker, generators, options }: Bench): Promise<Figures> {
  await sleep(2000)
  const count = Math.min(SNAPSHOTS, Math.floor(options.clusters / generators.count))
  const costs = async (old: boolean) => {
    const before = broker.cpuMs
    const sent = (await generators.call(0, 'fleet', 'snapshots', { count, old })) as {
      bytes: number
      eventBytes: number
    }[]
    const cpu = broker.cpuMs - before
    return { cpu, megabytes: sent.reduce((sum, { eventBytes }) => sum + eventBytes, 0) / MB }
  }
  const [young, old] = [await costs(false), await costs(true)]
  // The size is that of the records, however they are sent.
  return {
    snapshotCpuMsPerMb: round(young.cpu / old.megabytes),
    snapshotOldCpuMsPerMb: round(old.cpu / old.megabytes),
    snapshotMb: round(old.megabytes / count),
  }
}

/** Sends one change to all members, each after the previous one has arrived. */
export async function oneChange({ options, generators }: Bench): Promise<Figures> {
  const { clusters } = options
  await generators.all('fleet', 'live', { on: true })
  for (let i = 0; i < CHANGES; i += 1) {
    await generators.call(i % generators.count, 'fleet', 'change', { member: i, record: i })
    await sleep(EVERY_MS)
  }
  await sleep(2000)
  const ages = await generators.ages('fleet')
  return {
    fanoutP50Ms: ages.percentile(0.5),
    fanoutP99Ms: ages.percentile(0.99),
    ...arrivals('fanout', options, CHANGES * clusters, ages.size),
  }
}

/** Sends a hundred changes a second. */
export async function burst({ options, broker, generators }: Bench): Promise<Figures> {
  const { clusters, burstSeconds } = options
  await generators.all('fleet', 'live', { on: true })
  const before = broker.cpuMs
  const ask = { perSecond: PER_SECOND / generators.count, seconds: burstSeconds, publishers: PUBLISHERS }
  const sent = ((await generators.all('fleet', 'burst', ask)) as number[]).reduce((sum, one) => sum + one, 0)
  const cpu = broker.cpuMs - before
  await sleep(5000)
  const ages = await generators.ages('fleet')
  return {
    burstP50Ms: ages.percentile(0.5),
    burstP99Ms: ages.percentile(0.99),
    ...arrivals('burst', options, sent * clusters, ages.size),
    burstCpuPercent: Math.round(cpu / (burstSeconds * 10)),
  }
}

/** A member that requests one namespace of several does not get the others: the share of all records that arrived. */
function arrivals(stage: string, { namespaces }: BenchOptions, all: number, came: number): Figures {
  return namespaces === 1 ? { [`${stage}Missing`]: all - came } : { [`${stage}Share`]: round(came / all) }
}

/** Measures while nothing changes. */
export async function idle({ options, broker, generators }: Bench): Promise<Figures> {
  await generators.all('fleet', 'live', { on: false })
  const before = (await generators.state()).bytesRead
  await sleep(options.idleSeconds * 1000)
  const bytes = (await generators.state()).bytesRead - before
  return {
    idleBytesPerMember: round(bytes / options.clusters / options.idleSeconds, 1),
    brokerRssMb: Math.round(broker.residentMb('VmRSS')),
    brokerPeakRssMb: Math.round(broker.residentMb('VmHWM')),
  }
}

/** Kills the broker and restarts it; with `share`, on that share of a core. */
export async function restart({ options, broker, generators }: Bench, share = 1): Promise<Figures> {
  await generators.all('fleet', 'zero')
  await generators.state()
  const begun = performance.now()
  await broker.kill()
  const before = broker.cpuMs
  broker.start()
  const slow = share < 1 ? broker.replicas.map(({ pid }) => slowed(pid, share)) : []
  try {
    await allOf(generators, options.clusters, 'inSync')
  } finally {
    for (const release of slow) release()
  }
  const seconds = round((performance.now() - begun) / 1000, 1)
  const { events, failedConnects, sentAway, askedInAll } = await generators.state()
  if (share < 1) return { restartTenthSeconds: seconds, restartTenthFailedConnects: failedConnects }
  return {
    restartSeconds: seconds,
    restartFailedConnects: failedConnects,
    restartSentAway: sentAway,
    recordsSentAgain: events + askedInAll,
    restartCpuSeconds: round((broker.cpuMs - before) / 1000, 1),
  }
}

/** How much a slice of a hundred endpoints adds to a snapshot, and its size as a single change. */
export async function endpoints({ generators }: Bench): Promise<Figures> {
  const wire = async (): Promise<number> => {
    const [one] = (await generators.call(1, 'fleet', 'snapshots', { count: 1, old: false })) as { bytes: number }[]
    return one?.bytes ?? 0
  }
  const before = await wire()
  await generators.all('fleet', 'zero')
  await generators.call(0, 'fleet', 'largeSlices', { count: LARGE_SLICES })
  await sleep(2000)
  const live = (await generators.state()).messageBytes / (await generators.state()).inSync
  return {
    bytesPer100Endpoints: Math.round(((await wire()) - before) / LARGE_SLICES),
    liveBytesPer100Endpoints: Math.round(live / LARGE_SLICES),
  }
}

export async function peers({ options, broker, generators }: Bench): Promise<Figures> {
  await generators.all('fleet', 'stop')
  await broker.kill()
  const { clusters } = options
  const init = { generators, clusters, changes: CHANGES, everyMs: EVERY_MS, folder: broker.folder }
  const floor = await measureFloor(init)
  const etcd = await measureEtcd(init)
  return {
    tlsFloorP50Ms: floor.percentile(0.5),
    tlsFloorP99Ms: floor.percentile(0.99),
    ...(etcd === undefined ? {} : { etcdWatchP50Ms: etcd.percentile(0.5), etcdWatchP99Ms: etcd.percentile(0.99) }),
  }
}

export async function allOf(generators: Generators, clusters: number, what: 'inSync' | 'published'): Promise<void> {
  const end = performance.now() + IN_SYNC_MS
  for (let said = performance.now(); ;) {
    const state = await generators.state()
    if (state[what] === clusters) {
      if (state.reasons.length > 0) note(`failed connections: ${state.reasons.join('; ')}`)
      return
    }
    if (performance.now() > end) throw new Error(`${state[what]} of ${clusters} are ${what} after ${IN_SYNC_MS} ms`)
    if (performance.now() - said > 10_000) {
      note(`${state[what]} of ${clusters} ${what}, ${state.failedConnects} connections failed`)
      said = performance.now()
    }
    await sleep(100)
  }
}

function note(text: string): void {
  process.stderr.write(`${text}\n`)
}
