/**
 * A whole run of `sealane verify` or `sealane benchmark`: sweeps the remains of killed runs, prepares both ends, works,
 * and removes everything, also after an interrupt.
 */
import { randomBytes } from 'node:crypto'
import type { Clock } from '../../../reconcile/reconcile.ts'
import { UserError, formatDuration, messageOf } from '../../../runtime/runtime.ts'
import { type Benchmark, runBenchmark } from './benchmark.ts'
import { type CheckRow, type Outcome, failureOutcome, msText, nameOutcome, rowOf } from './check-outcome.ts'
import { FAILOVER_SECONDS, STEADY_MS, checkFailover } from './check-failover.ts'
import { KubeMember, type MemberFacts, type ProbeAdmin, type WantedObjects, readMember } from './kube-member.ts'
import type { CheckName } from './plan-checks.ts'
import type { Role } from './plan-objects.ts'
import { PROBE_PORT, type Family, type Target } from './probe-wire.ts'
import { type ProbeCaller, type Drain, type VerifyOptions, clusterCaller, verifyWays } from './run-verify.ts'

export interface SessionInit {
  readonly clock: Clock
  readonly signal: AbortSignal
  readonly say: (text: string) => void
  /** The namespace to use in both clusters. Undefined: each run makes its own, and removes it. */
  readonly namespace?: string
  /** The image of the probe pods. Undefined: that of the agent in each cluster. */
  readonly image?: string
  /** How long to wait for pods and imports. */
  readonly timeoutMs: number
  readonly drain?: Drain
  /** By chance, if undefined. */
  readonly run?: string
}

export interface SessionNames {
  readonly run: string
  readonly namespace: string
}

/** Kubelets end the pods of a killed command after this time, and a run after that removes what is left. */
const LASTS_SECONDS = 1200
const CLEAN_MS = 60_000

export function sessionNames({ run = randomBytes(8).toString('hex'), namespace }: SessionInit): SessionNames {
  return { run, namespace: namespace ?? `sealane-verify-${run.slice(0, 8)}` }
}

/** One end of a run, with what is made there. */
interface End extends WantedObjects {
  readonly admin: ProbeAdmin
  /** Whether a gateway there is to be drained. */
  readonly drains?: boolean
}

/**
 * Prepares the ends for `work`, whose first argument are the members in the order of `ends`. Throws UserError if a
 * member cannot take part, and the signal's reason after an interrupt.
 */
async function withMembers<T>(
  ends: readonly End[],
  caller: string | undefined,
  names: SessionNames,
  init: SessionInit,
  work: (members: readonly KubeMember[]) => Promise<T>,
): Promise<T> {
  const { clock, signal, say, drain, image, timeoutMs } = init
  const facts = await Promise.all(ends.map(({ admin }) => readMember(admin, image, signal)))
  checkTwoMembers(facts, caller)
  const until = new Date(clock.now() + 1000 * LASTS_SECONDS).toISOString()
  const members = ends.map(({ admin }, i) => {
    const own = facts[i] as MemberFacts
    return new KubeMember({
      ...{ admin, facts: own, clock, timeoutMs, until, say, ...names },
      letter: i === 0 ? 'a' : 'b',
      makesNamespace: init.namespace === undefined,
      lastsSeconds: LASTS_SECONDS,
      ...(drain === undefined ? {} : { undrain: (at, node, by) => drain.undrain(at, node, by) }),
    })
  })
  const callerOf = ({ id }: KubeMember): string => facts.find((one) => one.id !== id)?.id ?? caller ?? id
  await checkAllRights(
    members.map((member, i) => {
      const end = ends[i] as End
      // With one gateway there is nothing to drain.
      const drains = end.drains === true && member.facts.gateways.length > 1
      return member.checkRights(callerOf(member), end, drains, signal)
    }),
    signal,
  )
  try {
    for (const member of members) {
      const swept = await member.sweep(signal)
      if (swept > 0) say(`${member.id}: removed ${swept} objects of a run that was killed\n`)
    }
    say(`makes probe pods in namespace ${names.namespace}; they end by themselves at ${until} at the latest\n`)
    // All settle before anything is removed: a late request must not make an object after that.
    const prepared = await Promise.allSettled(
      members.map((member, i) => member.prepare(callerOf(member), ends[i] as End, signal)),
    )
    const failed = prepared.find(({ status }) => status === 'rejected') as PromiseRejectedResult | undefined
    if (failed !== undefined) throw failed.reason
    return await work(members)
  } finally {
    await cleanUp(members, say)
  }
}

/** Throws UserError, which names what is missing in each cluster, so that one request to an administrator is enough. */
async function checkAllRights(checks: readonly Promise<void>[], signal: AbortSignal): Promise<void> {
  const failed = (await Promise.allSettled(checks)).filter((one) => one.status === 'rejected')
  signal.throwIfAborted()
  const [first] = failed
  if (first === undefined) return
  const all = failed.map(({ reason }) => reason as unknown).filter((reason) => reason instanceof UserError)
  if (all.length < 2 || all.length < failed.length) throw first.reason
  const hint = all[0]?.hint
  throw new UserError(all.map(messageOf).join('; '), hint === undefined ? {} : { hint })
}

/** Uses a signal of its own, because that of the command may have been aborted. */
async function cleanUp(members: readonly KubeMember[], say: (text: string) => void): Promise<void> {
  const limited = AbortSignal.timeout(CLEAN_MS)
  const done = await Promise.allSettled(members.map((member) => member.close(limited)))
  for (const [i, one] of done.entries()) {
    if (one.status === 'rejected') say(`not removed: ${messageOf(one.reason)}\n${members[i]?.leftText ?? ''}`)
  }
}

function checkTwoMembers(facts: readonly MemberFacts[], caller: string | undefined): void {
  const ids = [...(caller === undefined ? [] : [caller]), ...facts.map(({ id }) => id)]
  const [first, second] = ids
  if (first !== second) return
  throw new UserError(`both ends are member ${first ?? ''}: expected two members`, {
    exitCode: 2,
    hint: 'name the other cluster with --to-context',
  })
}

const BOTH: readonly Role[] = ['client', 'server']

/** Checks both directions between two clusters. */
export function verifyClusters(
  admins: readonly [ProbeAdmin, ProbeAdmin],
  options: Omit<VerifyOptions, 'namespace'>,
  names: SessionNames,
  init: SessionInit,
): Promise<readonly CheckRow[]> {
  const drains = options.failover !== undefined
  const ends = admins.map((admin) => ({ admin, roles: BOTH, exports: true, drains }))
  return withMembers(ends, undefined, names, init, async ([a, b]) => {
    if (a === undefined || b === undefined) return []
    const [one, two] = [clusterCaller(a), clusterCaller(b)]
    const both = [[one, b] as const, [two, a] as const]
    return verifyWays(both, { ...options, ...init, namespace: names.namespace })
  })
}

/** Checks the direction from a site to a cluster. */
export function verifyFromSite(
  caller: ProbeCaller,
  admin: ProbeAdmin,
  options: Omit<VerifyOptions, 'namespace'>,
  names: SessionNames,
  init: SessionInit,
): Promise<readonly CheckRow[]> {
  const drains = options.failover !== undefined
  const ends: readonly End[] = [{ admin, roles: ['server'], exports: true, drains }]
  return withMembers(ends, caller.id, names, init, async ([server]) => {
    if (server === undefined) return []
    const rows = await verifyWays([[caller, server]], { ...options, ...init, namespace: names.namespace })
    const back = `${server.id} → ${caller.id}`
    return [
      ...rows,
      leftOut('import', back, 'a site has no probe pods: export a service there, and call it from a pod'),
    ]
  })
}

function leftOut(check: CheckName, way: string, why: string): CheckRow {
  return rowOf({ check, isSkipped: true }, way, { measured: why, reason: 'VerifySkipped' }, 0)
}

/** An imported service of the user. */
export interface UserService {
  readonly namespace: string
  readonly name: string
  readonly exporters: readonly string[]
  readonly ips: readonly string[]
  readonly ports: readonly { readonly port: number; readonly protocol?: string | undefined }[]
}

/**
 * Checks an exported service of the user from a site: its name, whether its TCP ports accept a connection, and where
 * the caller lets its gateways be drained, also meanwhile.
 */
export async function verifyService(
  caller: ProbeCaller,
  service: UserService,
  { clock, signal, say }: Pick<SessionInit, 'clock' | 'signal' | 'say'>,
): Promise<readonly CheckRow[]> {
  const { namespace, name, ips, ports, exporters } = service
  const way = `${caller.id} → ${namespace}/${name}`
  const full = `${name}.${namespace}.svc.clusterset.local`
  const dns = caller.dns === undefined ? {} : { dns: caller.dns }
  const rows: CheckRow[] = []
  const add = async (check: CheckName, family: Family | undefined, work: () => Promise<Outcome>): Promise<void> => {
    const began = clock.monotonic()
    const outcome = await work()
    const planned = { check, isSkipped: false, ...(family === undefined ? {} : { family }) }
    const row = rowOf(planned, way, outcome, clock.monotonic() - began)
    rows.push(row)
    say(`${way}  ${check}: ${row.result}, ${row.measured}\n`)
  }
  await add('import', undefined, () => Promise.resolve({ measured: `exported by ${exporters.join(', ')}` }))
  const resolved = await caller.call('pod', { op: 'resolve', name: full, ...dns }, signal)
  // The addresses of a headless service are those of its pods, which DNS alone has.
  const known = ips.length === 0 && resolved.ok ? resolved.value.addresses : ips
  for (const family of caller.families.map((one): Family => (one === 'IPv4' ? 4 : 6))) {
    if (known.length > 0 && !known.some((ip) => ip.includes(':') === (family === 6))) continue
    await add('name', family, () => {
      return Promise.resolve(
        resolved.ok ? nameOutcome(resolved.value.addresses, ips, family) : failureOutcome(resolved),
      )
    })
    for (const { port, protocol = 'TCP' } of ports) {
      if (protocol !== 'TCP') continue
      await add('tcp', family, async () => {
        const to: Target = { host: full, port, family, ...dns }
        const result = await caller.call('pod', { op: 'connect', to, timeoutMs: 5000 }, signal)
        return result.ok ? { measured: `port ${port}: ${msText(result.value.ms)}` } : failureOutcome(result)
      })
    }
  }
  const failover = await failoverOf(caller, { service, full, way, rows }, { clock, signal, say })
  const why = 'a service of yours answers in its own way: --to-context makes a probe server'
  const others: readonly CheckName[] = ['udp', 'large-tcp', 'large-udp', 'source', 'throughput', 'policy-refused']
  return [...rows, failover, ...others.map((check) => leftOut(check, way, why))]
}

interface CheckedService {
  readonly service: UserService
  /** Its name in the clusterset. */
  readonly full: string
  readonly way: string
  /** What was found so far. */
  readonly rows: readonly CheckRow[]
}

/** Calls the first TCP port that accepts connections. */
async function failoverOf(
  caller: ProbeCaller,
  { service, full, way, rows }: CheckedService,
  { clock, signal, say }: Pick<SessionInit, 'clock' | 'signal' | 'say'>,
): Promise<CheckRow> {
  const { gateways, dns } = caller
  if (gateways === undefined) return leftOut('failover', way, '--failover drains a gateway of this site')
  if (gateways.count < 2) {
    const measured = 'this site has one active gateway; run it where the other side has two'
    return rowOf({ check: 'failover', isSkipped: true }, way, { measured, reason: 'OneGatewayOnly' }, 0)
  }
  const tcp = service.ports.filter(({ protocol = 'TCP' }) => protocol === 'TCP')
  const tried = rows.filter(({ check }) => check === 'tcp')
  const at = tried.findIndex(({ result }) => result === 'pass')
  const found = tried[at]
  const port = tcp[at % Math.max(1, tcp.length)]?.port
  if (found === undefined || port === undefined) return leftOut('failover', way, 'no tcp check has passed')
  const to: Target = { host: full, port, family: found.family ?? 4, ...(dns === undefined ? {} : { dns }) }
  const steady = { op: 'steady', to, seconds: FAILOVER_SECONDS, intervalMs: STEADY_MS, isOpenOnly: true } as const
  const began = clock.monotonic()
  const { side } = gateways
  const outcome = await checkFailover({ side, call: () => caller.call('pod', steady, signal), way, signal, say })
  const row = rowOf({ check: 'failover', isSkipped: false }, way, outcome, clock.monotonic() - began)
  say(`${way}  failover: ${row.result}, ${row.measured}\n`)
  return row
}

export interface BenchmarkOptions {
  readonly seconds: number
  readonly pings: number
  /** The Nodes of the two ends. */
  readonly node?: string
  readonly toNode?: string
}

/** Measures from the first cluster to the second, and inside the first. */
export function benchmarkClusters(
  [from, to]: readonly [ProbeAdmin, ProbeAdmin],
  options: BenchmarkOptions,
  names: SessionNames,
  init: SessionInit,
): Promise<readonly Benchmark[]> {
  const { node, toNode } = options
  const ends: readonly End[] = [
    { admin: from, roles: BOTH, exports: false, ...(node === undefined ? {} : { nodes: { client: node } }) },
    { admin: to, roles: ['server'], exports: true, ...(toNode === undefined ? {} : { nodes: { server: toNode } }) },
  ]
  return withMembers(ends, undefined, names, init, async ([a, b]) => {
    if (a === undefined || b === undefined) return []
    const caller = clusterCaller(a)
    const across = await measured(caller, b, options, init)
    const [inside] = a.localAddresses('server')
    if (inside === undefined) return [across]
    const near = { host: inside, port: PROBE_PORT, family: familyOf(inside) }
    const call = { ...options, ...init, call: podCalls(caller) }
    return [across, await runBenchmark({ way: `inside ${a.id}`, to: near }, call)]
  })
}

/** Measures from a site to a cluster. */
export function benchmarkFromSite(
  caller: ProbeCaller,
  admin: ProbeAdmin,
  options: BenchmarkOptions,
  names: SessionNames,
  init: SessionInit,
): Promise<readonly Benchmark[]> {
  const nodes = options.toNode === undefined ? {} : { nodes: { server: options.toNode } }
  const ends: readonly End[] = [{ admin, roles: ['server'], exports: true, ...nodes }]
  return withMembers(ends, caller.id, names, init, async ([server]) =>
    server === undefined ? [] : [await measured(caller, server, options, init)],
  )
}

async function measured(
  caller: ProbeCaller,
  server: KubeMember,
  options: BenchmarkOptions,
  init: SessionInit,
): Promise<Benchmark> {
  const way = `${caller.id} → ${server.id}`
  const service = server.names.balanced
  const [ip] = (await caller.imported(service, server.id, init.signal)) ?? []
  if (ip === undefined) {
    throw new UserError(`${caller.id} has not imported ${service} within ${formatDuration(init.timeoutMs)}`, {
      reason: 'VerifyNotImported',
      hint: 'run sealane verify, which shows why',
    })
  }
  const to = { host: ip, port: PROBE_PORT, family: familyOf(ip) }
  return runBenchmark({ way, to }, { ...options, ...init, call: podCalls(caller) })
}

function podCalls(caller: ProbeCaller): Parameters<typeof runBenchmark>[1]['call'] {
  return (call, signal) => caller.call('pod', call, signal)
}

function familyOf(address: string): Family {
  return address.includes(':') ? 6 : 4
}
