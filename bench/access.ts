/**
 * `npm run bench:access -- [--json] [--rounds N] [--seconds N] [--services N] [--members N] [--policies N]`: what it
 * costs that paris lets in only what it exports, at 2,000 services, 100 members and 500 policies. The same site lets in
 * all of its pods in turn with that, so that a change of the machine's speed affects both.
 *
 * - `laneRatio`: TCP from a pod in milano to an exported port of a pod in paris, beside the same without the rules.
 * - `connectNsWith`, `connectNsWithout`: a TCP connection over the lane.
 * - `changeMs`: from the written file of a policy until packets are decided differently. Beside it a file of one
 *   element into a table of the same size, by a new `nft`.
 * - `agentRssMb`, `nodeRssMb`: the agent and the routeagent of paris.
 * - `brokerMsPerMemberJoin`: access/broker-joins.ts. Beside it the same where all is offered to all.
 */
import { rename, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { globalAddress } from '../demo/checks/world.ts'
import { siteProcesses } from '../demo/sites.ts'
import { until } from '../demo/until.ts'
import { changeSiteExposure } from '../kubeapi/files/user/edit-site-file.ts'
import { joinCost } from './access/broker-joins.ts'
import { PROBE, type Size, probePolicy, writeManyServices } from './access/many-services.ts'
import { median, percentile, progress, round } from './figures.ts'
import { type JoinedSites, withJoinedSites } from './joined-sites.ts'

const PROGRAM = join(import.meta.dirname, 'access', 'packets.ts')
const CALLER = 'milano-web-1'
const CALLED = 'paris-web-0'
const NODE = 'paris-w1'
const CONNECTIONS = 300
const CHANGES = 8
/** Longer than a change takes, and than the agent waits for more changes. */
const SETTLED_MS = 1500
const TARGETS = { laneRatio: 0.97, changeMs: 100 }

type Exposure = 'exports' | 'pods'

async function main(): Promise<void> {
  const text = { type: 'string' } as const
  const { values } = parseArgs({
    options: { json: { type: 'boolean' }, rounds: text, seconds: text, services: text, members: text, policies: text },
  })
  const [rounds, seconds] = [Number(values.rounds ?? 3), Number(values.seconds ?? 4)]
  const size: Size = {
    services: Number(values.services ?? 2000),
    members: Number(values.members ?? 100),
    policies: Number(values.policies ?? 500),
  }
  const figures = {
    ...(await withJoinedSites(
      { names: ['milano', 'paris'], prepare: (joined) => writeManyServices(objectsOf(joined), size) },
      (joined) => measure(joined, size, rounds, seconds),
    )),
    brokerMsPerMemberJoin: round(await joinCost(size, true)),
    openBrokerMsPerMemberJoin: round(await joinCost(size, false)),
    ...size,
  }
  progress(
    figures,
    `${size.services} services, ${size.members} members, ${size.policies} policies (${rounds} rounds of ${seconds} s)\n` +
      `through the lane: ${figures.gbps} Gbit/s, without rules ${figures.openGbps}; ` +
      `ratio ${figures.laneRatio} (at least ${TARGETS.laneRatio})\n` +
      `a connection: ${figures.connectNsWith} ns, without rules ${figures.connectNsWithout}\n` +
      `a policy written to packets decided differently: ${figures.changeMs} ms (at most ${TARGETS.changeMs}), ` +
      `slowest ${figures.changeMaxMs}; a new nft for one element ${figures.bareChangeMs} ms\n` +
      `resident: agent ${figures.agentRssMb} MB, routeagent ${figures.nodeRssMb} MB\n` +
      `a join at the broker: ${figures.brokerMsPerMemberJoin} ms, all offered to all ` +
      `${figures.openBrokerMsPerMemberJoin} ms`,
  )
}

function objectsOf({ lab }: JoinedSites): string {
  return join(lab.directory, 'paris', 'objects')
}

async function measure(joined: JoinedSites, size: Size, rounds: number, seconds: number) {
  const { lab, sites, rows } = joined
  const server = await globalAddress({ ...joined, flat: false }, 'paris', 'web-0')
  lab.spawn(CALLED, 'receive', process.execPath, [PROGRAM, 'receive', String(PROBE.port)])
  const gbps: Record<Exposure, number[]> = { exports: [], pods: [] }
  const connectNs: Record<Exposure, number[]> = { exports: [], pods: [] }
  for (let turn = 0; turn < rounds; turn += 1) {
    for (const exposure of ['pods', 'exports'] as const) {
      await expose(joined, exposure, size)
      await until(`calls to be answered with ${exposure}`, 60_000, () => isAnswered(joined, server))
      gbps[exposure].push(await throughput(joined, server, seconds))
      connectNs[exposure].push(await connectionNs(joined, server))
    }
  }
  const changes = await changeTimes(joined, server)
  const bareChangeMs = await bareChange(joined)
  const paris = rows.find(({ name }) => name === 'paris')
  if (paris === undefined) throw new Error('no site paris')
  const residentMb = async (name: string): Promise<number> => {
    const process = siteProcesses(paris).find((row) => row.name === name)
    if (process === undefined) throw new Error(`no process ${name}`)
    return round((await sites.metric(process, 'process_resident_memory_bytes')) / 1e6, 1)
  }
  return {
    laneRatio: round(median(gbps.exports.map((value, i) => value / (gbps.pods[i] ?? NaN))), 3),
    gbps: round(median(gbps.exports), 3),
    openGbps: round(median(gbps.pods), 3),
    connectNsWith: Math.round(median(connectNs.exports)),
    connectNsWithout: Math.round(median(connectNs.pods)),
    changeMs: round(median(changes), 1),
    changeMaxMs: round(percentile(changes, 1), 1),
    bareChangeMs: round(bareChangeMs, 1),
    agentRssMb: await residentMb('paris-gw-agent'),
    nodeRssMb: await residentMb('paris-w1-routeagent'),
  }
}

/** The agent reads the site file when it starts. The nodes follow, and lanes stay. */
async function expose({ lab, sites, rows }: JoinedSites, exposure: Exposure, { services }: Size): Promise<void> {
  const paris = rows.find(({ name }) => name === 'paris')
  const agent = paris && siteProcesses(paris).find(({ part }) => part === 'agent')
  if (agent === undefined) throw new Error('no agent of paris')
  await lab.stop(agent.name)
  await changeSiteExposure(sites.siteFile('paris'), exposure)
  sites.start(agent, 'paris')
  await sites.ready(agent)
  await until(`paris to let in ${exposure}`, 60_000, async () => {
    const chain = await lab.must(NODE, 'nft', ['list', 'chain', 'ip', 'sealane_node', 'access-in'])
    if (chain.includes('goto admit\n') !== (exposure === 'exports')) return chain
    if (exposure === 'pods') return true
    const elements = (await lab.must(NODE, 'nft', ['list', 'map', 'ip', 'sealane_node', 'access'])).split(
      'goto ',
    ).length
    return elements > 2 * services ? true : `${elements} elements`
  })
}

/** The far gateway and the node of the pod have read of the exposure at different times. */
async function isAnswered({ lab }: JoinedSites, server: string): Promise<true | string> {
  const args = [PROGRAM, 'connect', server, String(PROBE.port), '1']
  const { status, stderr } = await lab.exec(CALLER, process.execPath, args, { timeoutMs: 5000 })
  return status === 0 ? true : `exit ${status}: ${stderr.slice(-200)}`
}

interface IperfReport {
  readonly end?: { readonly sum_received?: { readonly bits_per_second: number } }
}

/** The received Gbit/s of one TCP stream. */
async function throughput({ lab }: JoinedSites, server: string, seconds: number): Promise<number> {
  const args = ['-c', server, '-p', String(PROBE.iperf), '-t', String(seconds), '-O', '1', '-J']
  const report = JSON.parse(await lab.must(CALLER, 'iperf3', args, { timeoutMs: (seconds + 20) * 1000 })) as IperfReport
  return (report.end?.sum_received?.bits_per_second ?? NaN) / 1e9
}

async function connectionNs({ lab }: JoinedSites, server: string): Promise<number> {
  const args = [PROGRAM, 'connect', server, String(PROBE.port), String(CONNECTIONS)]
  return median(JSON.parse(await lab.must(CALLER, process.execPath, args, { timeoutMs: 60_000 })) as number[])
}

/**
 * The ms of each change: one that takes the probed service from milano, whose datagrams then stop, and one that gives it
 * back, by turns.
 */
async function changeTimes(joined: JoinedSites, server: string): Promise<number[]> {
  const { lab } = joined
  lab.spawn(CALLER, 'send', process.execPath, [PROGRAM, 'send', server, String(PROBE.port)])
  const file = join(objectsOf(joined), 'probe-policy.yaml')
  const arrivals = async (): Promise<number[]> => (await lab.tail('receive', 20_000)).trim().split('\n').map(Number)
  await until('datagrams to arrive', 5000, async () => (await arrivals()).length > 100)
  const times: number[] = []
  for (let turn = 0; turn < CHANGES; turn += 1) {
    await writeFile(`${file}.new`, JSON.stringify(probePolicy(['nobody'])))
    await rename(`${file}.new`, file)
    const taken = Date.now()
    await sleep(SETTLED_MS)
    times.push(Math.max(0, ((await arrivals()).at(-1) ?? NaN) - taken))
    await rm(file)
    const given = Date.now()
    await sleep(SETTLED_MS)
    times.push(((await arrivals()).find((at) => at >= given) ?? NaN) - given)
  }
  await lab.stop('send')
  return times
}

/** What a program without a session of its own does: a new nft for one element. */
async function bareChange({ lab }: JoinedSites): Promise<number> {
  const times: number[] = []
  const element = 'element ip sealane_node reachable { 10.42.99.99 : goto all-members }'
  for (let i = 0; i < CHANGES; i += 1) {
    const begun = performance.now()
    await lab.must(NODE, 'nft', [`add ${element}`])
    times.push(performance.now() - begun)
    // The route agent may have removed it already, as it removes whatever it has not planned.
    await lab.exec(NODE, 'nft', [`delete ${element}`])
  }
  return median(times)
}

await main()
