/**
 * `npm run bench:paths -- [--json] [--rounds N]`: changes of the path between two gateways while traffic flows. First
 * the path carries only packets of 1,280 octets, and no router reports it: how soon both sides know the size, and how
 * long bulk TCP between pods of worker nodes stalls. Then the address translation in front of a site changes its port,
 * and its address: how long nothing arrives in either direction, with traffic in one direction and in both.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import type { Gateway } from '../model/objects.ts'
import { requirePackages } from '../scripts/install-system-packages.ts'
import { type Mapping, narrow, translate, widen } from '../test/failover/path-faults.ts'
import { Stream } from '../test/failover/receiver.ts'
import { POD_ADDRESSES, type TwoSites, withTwoSites } from '../test/failover/sites.ts'
import { introduce } from '../test/gateway/support/netns-sites.ts'
import { BEHIND_NAT, MILANO, type Running, msUntilUp, withTwoIn } from '../test/gateway/support/two-gateways.ts'
import { eventually } from '../test/support/eventually.ts'
import { type Netns, netnsMissing } from '../test/support/netns.ts'
import { percentile, progress, round } from './figures.ts'

const NARROW = 1280
/** More than nothing, and less than a lane carries over the full width of the network. */
const NARROW_LANE = 1216
const HANG_MS = 30_000
/** This is longer than any gap of interest. */
const GAP_MS = 5000
/** The time until it is certain that traffic flows. */
const BUSY_MS = 3000
/**
 * A size that fails within a minute after it grew is tried less often, so this wait makes each round like the first.
 */
const GROWN_WELL_MS = 61_000

interface Sizes {
  readonly tcpGapMs: number[]
  readonly foundMs: number[]
  readonly backMs: number[]
}

interface Gaps {
  readonly port: number[]
  readonly address: number[]
}

async function main(): Promise<void> {
  const { values } = parseArgs({ options: { json: { type: 'boolean' }, rounds: { type: 'string', default: '6' } } })
  const rounds = Number(values.rounds)
  if (!(Number.isInteger(rounds) && rounds > 0)) {
    throw new Error(`--rounds ${JSON.stringify(values.rounds)}: expected a whole number above 0`)
  }
  const missing = netnsMissing()
  if (missing !== undefined) throw new Error(missing)
  requirePackages('bench')
  const sizes = await inFolder((folder) => withTwoSites(folder, (sites) => measureSizes(sites, rounds)))
  const gaps = await inFolder((folder) =>
    withTwoIn(folder, [MILANO, BEHIND_NAT], (milano, hidden, internet) =>
      measureGaps(milano, hidden, internet, rounds),
    ),
  )
  report(sizes, gaps, rounds)
}

async function measureSizes(sites: TwoSites, rounds: number): Promise<Sizes> {
  const { internet, nodes, pods } = sites
  const sizes: Sizes = { tcpGapMs: [], foundMs: [], backMs: [] }
  for (let i = 0; i < rounds; i += 1) {
    // A pod would begin with the path MTU that it learned in the last round.
    for (const pod of Object.values(pods)) await pod.exec('ip', ['route', 'flush', 'cache'])
    const [from, to] = i % 2 === 0 ? (['milano', 'paris'] as const) : (['paris', 'milano'] as const)
    const stream = await Stream.start('tcp', pods[from], pods[to], POD_ADDRESSES[to])
    await sleep(BUSY_MS)
    await stream.received()
    const began = performance.now()
    await narrow(internet, nodes, NARROW)
    await untilAll(sites, (mtu) => mtu <= NARROW_LANE)
    sizes.foundMs.push(performance.now() - began)
    await sleep(GAP_MS)
    sizes.tcpGapMs.push((await stream.received()).longestGapMs)
    const mended = performance.now()
    await widen(internet, nodes)
    await untilAll(sites, (mtu) => mtu > NARROW_LANE)
    sizes.backMs.push(performance.now() - mended)
    await stream.stop()
    if (i + 1 < rounds) await sleep(GROWN_WELL_MS)
    process.stderr.write(`size, round ${i + 1} of ${rounds}: ${JSON.stringify(last(sizes))}\n`)
  }
  return sizes
}

/** Waits until the MTU of every link of every gateway passes the check. */
async function untilAll({ nodes, errors }: TwoSites, isSo: (mtu: number) => boolean): Promise<void> {
  const mtus = (): number[] =>
    nodes.flatMap(({ process, name }) => {
      const gateway = process?.get('Gateway', name) as Gateway | undefined
      return (gateway?.status?.connections ?? []).map(({ mtu }) => mtu ?? 0)
    })
  const say = (): string => `the sizes of all links (${mtus().join(' ')}; ${errors()})`
  await eventually(() => mtus().every(isSo), { deadlineMs: HANG_MS * 2, intervalMs: 20, say: say() })
}

async function measureGaps(milano: Running, hidden: Running, internet: Netns, rounds: number): Promise<Gaps> {
  const gaps: Gaps = { port: [], address: [] }
  const { address: inside } = hidden.site.init
  const addresses = [MILANO.router, MILANO.router.replace(/1$/, '77')]
  await internet.exec('ip', ['address', 'add', `${addresses[1]}/24`, 'dev', 'to-milano'])
  const map = (mapping: Mapping) => translate(internet, { inside, device: 'to-milano', mapping })
  let mapping: Mapping = { address: MILANO.router, port: 40_000 }
  await map(mapping)
  introduce(milano, hidden)
  await msUntilUp(milano, hidden, HANG_MS)
  const there = () => Stream.start('udp', milano.site.pod, hidden.site.pod, '244.2.0.5')
  const back = () => Stream.start('udp', hidden.site.pod, milano.site.pod, '244.0.0.5')
  for (const [say, starts] of [
    ['to the hidden site', [there]],
    ['from the hidden site', [back]],
    ['both ways', [there, back]],
  ] as const) {
    const streams = await Promise.all(starts.map((start) => start()))
    await sleep(BUSY_MS)
    for (let i = 0; i < rounds; i += 1) {
      for (const what of ['port', 'address'] as const) {
        await Promise.all(streams.map((stream) => stream.received()))
        const other = addresses.find((one) => one !== mapping.address) ?? mapping.address
        mapping = what === 'port' ? { ...mapping, port: mapping.port + 1 } : { ...mapping, address: other }
        await map(mapping)
        await sleep(GAP_MS)
        const seen = await Promise.all(streams.map((stream) => stream.received()))
        gaps[what].push(Math.max(...seen.map(({ longestGapMs }) => longestGapMs)))
        process.stderr.write(`translation, another ${what}, ${say}: ${Math.round(gaps[what].at(-1) ?? 0)} ms\n`)
      }
    }
    await Promise.all(streams.map((stream) => stream.stop()))
  }
  return gaps
}

function report({ tcpGapMs, foundMs, backMs }: Sizes, { port, address }: Gaps, rounds: number): void {
  const worst = (values: readonly number[]): number => round(Math.max(...values), 0)
  const middle = (values: readonly number[]): number => round(percentile(values, 0.5), 0)
  const result = {
    rounds,
    mtuTcpGapMs: worst(tcpGapMs),
    mtuTcpGapP50Ms: middle(tcpGapMs),
    mtuFoundMs: worst(foundMs),
    mtuFoundP50Ms: middle(foundMs),
    mtuBackMs: worst(backMs),
    natPortGapMs: worst(port),
    natPortGapP50Ms: middle(port),
    natAddressGapMs: worst(address),
    natAddressGapP50Ms: middle(address),
  }
  progress(
    result,
    `a path of ${NARROW} octets: found after p50 ${result.mtuFoundP50Ms}, at most ${result.mtuFoundMs} ms; ` +
      `TCP stands still for p50 ${result.mtuTcpGapP50Ms}, at most ${result.mtuTcpGapMs} ms; ` +
      `wide again: known after at most ${result.mtuBackMs} ms\n` +
      `translation: another port p50 ${result.natPortGapP50Ms}, at most ${result.natPortGapMs} ms; ` +
      `another address p50 ${result.natAddressGapP50Ms}, at most ${result.natAddressGapMs} ms (${rounds} rounds)`,
  )
}

function last({ tcpGapMs, foundMs, backMs }: Sizes): Record<string, number> {
  const of = (values: readonly number[]): number => Math.round(values.at(-1) ?? 0)
  return { tcpGapMs: of(tcpGapMs), foundMs: of(foundMs), backMs: of(backMs) }
}

async function inFolder<T>(work: (folder: string) => Promise<T>): Promise<T> {
  const folder = mkdtempSync(join(tmpdir(), 'sealane-paths-'))
  try {
    return await work(folder)
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

await main()
