/** The measurements of bench:kube, one function each; every one leaves the clusters ready for the next. */
import { setTimeout as sleep } from 'node:timers/promises'
import { eventually } from '../../test/support/eventually.ts'
import type { KubeObject } from '../../test/kube/support/kube-request.ts'
import { BareChain, measureBareWrites } from './bare.ts'
import {
  DISCOVERY,
  ENDPOINTS,
  FLOOR,
  LOAD,
  MCS,
  SHOP,
  atOnce,
  exportObject,
  namespaceObject,
  serviceObject,
  sliceObject,
} from './objects.ts'
import type { BenchCluster, BenchLab } from './lab.ts'
import { type Seen, Watch } from './watch.ts'
import { LABEL_SOURCE_CLUSTER } from '../../model/spec-constants.ts'

const LARGE = 5000
const COLD_DEADLINE_MS = 180_000

export interface Chained {
  readonly ms: number[]
  /** How long the two API servers take for the same chain of events without Sealane in between. */
  readonly bareMs: number[]
}

/** Names of services, each with a number. */
function names(prefix: string, count: number): string[] {
  return Array.from({ length: count }, (_, i) => `${prefix}-${i}`)
}

export async function makeNamespaces({ exporter, importer }: BenchLab): Promise<void> {
  for (const { api } of [exporter, importer]) {
    for (const name of [SHOP, LOAD, FLOOR]) await api.apply(`/api/v1/namespaces/${name}`, namespaceObject(name))
  }
}

/** Measures the time from a ServiceExport in one cluster to the ServiceImport in the other. */
export async function measureExports(lab: BenchLab, count: number): Promise<Chained> {
  const { exporter, importer } = lab
  const services = names('web', count)
  await makeServices(exporter, SHOP, services)
  const imports = await Watch.open(importer.plane, `${MCS}/namespaces/${SHOP}/serviceimports`)
  const chain = await BareChain.open(lab)
  const result: Chained = { ms: [], bareMs: [] }
  for (const name of services) {
    result.bareMs.push(await chain.run(name))
    const seen = imports.next(`ServiceImport ${name}`, ({ type, object }) => {
      return type === 'ADDED' && object.metadata.name === name
    })
    const started = performance.now()
    await exporter.api.post(`${MCS}/namespaces/${SHOP}/serviceexports`, exportObject(name))
    result.ms.push((await seen).at - started)
    // Statuses are still being written, so a pause keeps the next export separate.
    await sleep(50)
  }
  imports.close()
  chain.close()
  await withdraw(lab, SHOP)
  return result
}

export interface Cold {
  readonly ms: number
  readonly bareMs: number
}

/** Makes services with endpoints and exports while no agent runs. */
export async function makeExports({ exporter, importer }: BenchLab, count: number): Promise<void> {
  await Promise.all([exporter.agent.stop(), importer.agent.stop()])
  const services = names('load', count)
  await makeServices(exporter, LOAD, services)
  await atOnce(
    services.map((name) => () => exporter.api.post(`${MCS}/namespaces/${LOAD}/serviceexports`, exportObject(name))),
  )
}

/**
 * Starts both agents without earlier state, and measures how long it takes until everything is published, imported and
 * has its endpoints. The peer is the same objects, written into both clusters at once by plain requests.
 */
export async function measureCold(lab: BenchLab, count: number): Promise<Cold> {
  const { exporter, importer } = lab
  const bareMs = await measureBareWrites([exporter, importer], names('load', count))
  const ms = await measureStart(lab, [exporter, importer], count)
  return { ms, bareMs }
}

/** Everything is published already, and only the importing agent starts, in a cluster where nothing is imported. */
export async function measureImport(lab: BenchLab, count: number): Promise<Cold> {
  const { importer } = lab
  await importer.agent.stop()
  await importer.api.delete(`${MCS}/namespaces/${LOAD}/serviceimports`)
  await importer.api.delete(`${DISCOVERY}/namespaces/${LOAD}/endpointslices`)
  const bareMs = await measureBareWrites([importer], names('load', count))
  const ms = await measureStart(lab, [importer], count)
  return { ms, bareMs }
}

/** The time from the start of these agents until all services are imported. */
async function measureStart(lab: BenchLab, starting: readonly BenchCluster[], count: number): Promise<number> {
  const { exporter, importer } = lab
  for (const { agent } of starting) agent.forgetReplica()
  const imports = await Watch.open(importer.plane, `${MCS}/namespaces/${LOAD}/serviceimports`)
  const slices = await Watch.open(importer.plane, `${DISCOVERY}/namespaces/${LOAD}/endpointslices`)
  const found = { imports: new Set<string>(), slices: new Set<string>() }
  const allImports = ({ object }: Seen): boolean => found.imports.add(object.metadata.name).size === count
  const allSlices = ({ object }: Seen): boolean => {
    if (endpointsOf(object).length === ENDPOINTS) found.slices.add(object.metadata.name)
    return found.slices.size === count
  }
  const done = Promise.all([
    imports.next(`${count} ServiceImports`, allImports, COLD_DEADLINE_MS),
    slices.next(`${count} EndpointSlices`, allSlices, COLD_DEADLINE_MS),
  ])
  const started = performance.now()
  for (const { agent } of starting) agent.start()
  const ended = await done.catch((error: unknown) => {
    const logs = [exporter, importer].map(({ agent }) => agent.log()).join('\n')
    throw new Error(`${found.imports.size} ServiceImports, ${found.slices.size} slices: ${String(error)}\n${logs}`)
  })
  imports.close()
  slices.close()
  await settle(lab)
  return Math.max(...ended.map(({ at }) => at)) - started
}

/**
 * Switches one endpoint of one service on and off, and measures how long it takes until the other cluster's slice shows
 * it.
 */
export async function measureFlips(lab: BenchLab, count: number): Promise<Chained> {
  const { exporter, importer } = lab
  const watch = await Watch.open(importer.plane, `${DISCOVERY}/namespaces/${LOAD}/endpointslices`)
  const chain = await BareChain.open(lab)
  const result: Chained = { ms: [], bareMs: [] }
  for (let i = 0; i < count; i++) {
    result.bareMs.push(await chain.run(`flip-${i}`))
    const name = `load-${i}`
    const path = `${DISCOVERY}/namespaces/${LOAD}/endpointslices/${name}-1`
    const slice = await exporter.api.get(path)
    const [first, ...rest] = endpointsOf(slice)
    if (first === undefined) throw new Error(`${path} has no endpoints`)
    const address = first.addresses[0] ?? ''
    const off = { ready: false, serving: false, terminating: false }
    const seen = watch.next(`the change of ${name}`, ({ object }) => {
      return object.metadata.labels?.[LABEL_SOURCE_CLUSTER] !== undefined && isOff(object, address)
    })
    const started = performance.now()
    await exporter.api.put(path, { ...slice, endpoints: [{ ...first, conditions: off }, ...rest] })
    result.ms.push((await seen).at - started)
    await sleep(50)
  }
  watch.close()
  chain.close()
  return result
}

export interface Large {
  /** The time from the export to all endpoints in the other cluster. */
  readonly ms: number
  readonly slices: number
  /** The number of endpoints of the largest slice. */
  readonly largest: number
}

/** Exports one Service with 5,000 endpoints, in slices ten times as large as those that are published. */
export async function measureLarge({ exporter, importer }: BenchLab): Promise<Large> {
  const name = 'large'
  const path = `/namespaces/${SHOP}`
  await exporter.api.post(`/api/v1${path}/services`, serviceObject(name))
  for (let first = 0; first < LARGE; first += 1000) {
    const slice = sliceObject(`${name}-${first}`, name, { first, count: 1000 })
    await exporter.api.post(`${DISCOVERY}${path}/endpointslices`, slice)
  }
  const watch = await Watch.open(importer.plane, `${DISCOVERY}${path}/endpointslices`)
  const sizes = new Map<string, number>()
  const all = watch.next(
    `${LARGE} endpoints`,
    ({ type, object }) => {
      if (type === 'DELETED') sizes.delete(object.metadata.name)
      else sizes.set(object.metadata.name, endpointsOf(object).length)
      return [...sizes.values()].reduce((sum, size) => sum + size, 0) === LARGE
    },
    COLD_DEADLINE_MS,
  )
  const started = performance.now()
  await exporter.api.post(`${MCS}${path}/serviceexports`, exportObject(name))
  const { at } = await all
  watch.close()
  await eventually(() => importer.api.find(`${MCS}${path}/serviceimports/${name}`), { deadlineMs: 10_000 })
  return { ms: at - started, slices: sizes.size, largest: Math.max(...sizes.values()) }
}

async function makeServices({ api }: BenchCluster, namespace: string, services: readonly string[]): Promise<void> {
  await atOnce(
    services.map((name, i) => async () => {
      const slice = sliceObject(`${name}-1`, name, { first: i * ENDPOINTS, count: ENDPOINTS })
      await api.post(`/api/v1/namespaces/${namespace}/services`, serviceObject(name))
      await api.post(`${DISCOVERY}/namespaces/${namespace}/endpointslices`, slice)
    }),
  )
}

/** Withdraws all exports of a namespace, and waits until nothing of them is left. */
async function withdraw({ exporter, importer }: BenchLab, namespace: string): Promise<void> {
  await exporter.api.delete(`${MCS}/namespaces/${namespace}/serviceexports`)
  const left = { exporter: 0, importer: 0 }
  await eventually(
    async () => {
      left.exporter = (await exporter.api.list(`${MCS}/namespaces/${namespace}/serviceimports`)).length
      left.importer = (await importer.api.list(`${MCS}/namespaces/${namespace}/serviceimports`)).length
      return left.exporter + left.importer === 0
    },
    { deadlineMs: 60_000, intervalMs: 200, say: 'what was imported is gone' },
  )
  await exporter.api.delete(`${DISCOVERY}/namespaces/${namespace}/endpointslices`)
}

/** Waits until the agents write nothing more. */
async function settle({ exporter, importer }: BenchLab): Promise<void> {
  let before = -1
  await eventually(
    async () => {
      const now = (await exporter.agent.writes()) + (await importer.agent.writes())
      const same = now === before
      before = now
      return same
    },
    { deadlineMs: 120_000, intervalMs: 1500, say: 'all statuses are written' },
  )
}

interface SliceEndpoint {
  readonly addresses: readonly string[]
  readonly conditions?: { readonly ready?: boolean }
}

function endpointsOf(slice: KubeObject): readonly SliceEndpoint[] {
  return (slice['endpoints'] ?? []) as readonly SliceEndpoint[]
}

function isOff(slice: KubeObject, address: string): boolean {
  return endpointsOf(slice).some(
    ({ addresses, conditions }) => addresses.includes(address) && conditions?.ready === false,
  )
}
