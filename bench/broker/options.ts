/** The options of `npm run bench:broker`. */
import { parseArgs } from 'node:util'

export interface BenchOptions {
  readonly clusters: number
  /** The number of exports of each cluster, with one EndpointSlice each. */
  readonly services: number
  /** Each cluster requests one of so many namespaces; with 1 it requests everything. */
  readonly namespaces: number
  readonly json: boolean
  /** The seconds of the burst, with 100 changes a second. */
  readonly burstSeconds: number
  readonly idleSeconds: number
  readonly store: 'sqlite' | 'etcd'
  /** The number of broker processes on one store. */
  readonly replicas: number
  /** Whether to measure a restart with a tenth of a core as well. */
  readonly tenth: boolean
  /** Whether to leave out the peers, for short loops during development. */
  readonly alone: boolean
  /** The names of the stages to run; if it is empty, all of them. */
  readonly only: ReadonlySet<string>
}

const MAX_CLUSTERS = 3000
const MAX_SERVICES = 1000
const MAX_REPLICAS = 5

/** Throws for an unknown flag or value. */
export function readOptions(argv: readonly string[]): BenchOptions {
  const { values } = parseArgs({
    args: [...argv],
    options: {
      json: { type: 'boolean', default: false },
      clusters: { type: 'string', default: '100' },
      services: { type: 'string', default: '62' },
      namespaces: { type: 'string', default: '1' },
      store: { type: 'string', default: 'sqlite' },
      replicas: { type: 'string' },
      'burst-seconds': { type: 'string', default: '30' },
      'idle-seconds': { type: 'string', default: '35' },
      tenth: { type: 'boolean', default: false },
      alone: { type: 'boolean', default: false },
      only: { type: 'string', default: '' },
    },
  })
  const store = storeOf(values.store)
  // The default for an etcd is several replicas.
  const replicas = whole('replicas', values.replicas ?? (store === 'etcd' ? '3' : '1'), MAX_REPLICAS)
  if (replicas > 1 && store === 'sqlite') throw new Error(`--replicas ${replicas}: expected --store etcd with it`)
  return {
    clusters: whole('clusters', values.clusters, MAX_CLUSTERS),
    services: whole('services', values.services, MAX_SERVICES),
    namespaces: whole('namespaces', values.namespaces, MAX_SERVICES),
    burstSeconds: whole('burst-seconds', values['burst-seconds'], 300),
    idleSeconds: whole('idle-seconds', values['idle-seconds'], 300),
    ...{ store, replicas },
    json: values.json,
    tenth: values.tenth,
    alone: values.alone,
    only: new Set(values.only === '' ? [] : values.only.split(',')),
  }
}

function storeOf(text: string): BenchOptions['store'] {
  if (text === 'sqlite' || text === 'etcd') return text
  throw new Error(`--store ${JSON.stringify(text)}: expected sqlite or etcd`)
}

function whole(flag: string, text: string, most: number): number {
  const number = Number(text)
  if (Number.isInteger(number) && number > 0 && number <= most) return number
  throw new Error(`--${flag} ${JSON.stringify(text)}: expected a whole number from 1 to ${most}`)
}
