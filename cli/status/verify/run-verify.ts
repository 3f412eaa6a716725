/**
 * `sealane verify`: makes the probe objects in both members, runs the planned checks in both directions, and removes
 * everything in any case. Who calls is a cluster with pods, or a site with this machine.
 */
import type { Clock } from '../../../reconcile/reconcile.ts'
import {
  type CheckRow,
  type Outcome,
  answerOutcome,
  bulkOutcome,
  datagramOutcome,
  failureOutcome,
  nameOutcome,
  refusalOutcome,
  refusedOutcome,
  rowOf,
  searchOutcome,
  sourceOutcome,
  srvOutcome,
  throughputOutcome,
  msText,
} from './check-outcome.ts'
import { type DrainInit, type DrainSide, FAILOVER_SECONDS, STEADY_MS, checkFailover } from './check-failover.ts'
import type { KubeMember, ProbeAdmin } from './kube-member.ts'
import { type CheckName, DATAGRAM_SIZES, LARGE_BYTES, type PlannedCheck, planChecks } from './plan-checks.ts'
import {
  type Family,
  HIDDEN_PORT,
  PROBE_PORT,
  type ProbeCall,
  type ProbeResult,
  type ProbeResults,
  type Target,
} from './probe-wire.ts'

/** Where calls come from. */
export interface ProbeCaller {
  readonly id: string
  readonly kind: 'cluster' | 'site'
  readonly families: readonly ('IPv4' | 'IPv6')[]
  /** `address:port` of the DNS server to ask. Undefined where the machine's own resolver is set up for it. */
  readonly dns?: string
  call<Call extends ProbeCall>(from: 'pod' | 'node', call: Call, signal: AbortSignal): Promise<ProbeResult<Call['op']>>
  /** See KubeMember.imported(). */
  imported(service: string, exporter: string, signal: AbortSignal): Promise<readonly string[] | undefined>
  /** Its own gateways, how many are active. Undefined if the check `failover` is not asked of them. */
  readonly gateways?: { readonly count: number; readonly side: DrainSide } | undefined
  /** The addresses that others see of it. Undefined if that is not known. */
  sources(family: Family): readonly string[] | undefined
}

export function clusterCaller(member: KubeMember): ProbeCaller {
  return {
    ...{ id: member.id, kind: 'cluster', families: member.facts.families },
    call: (from, call, signal) => member.call(from, call, signal),
    imported: (service, exporter, signal) => member.imported(service, exporter, signal),
    sources: (family) => member.addresses('client', family),
  }
}

/** What a drain reads and changes. */
export type GatewayAdmin = Pick<ProbeAdmin, 'get' | 'list' | 'merge'>

/** Drains a gateway and takes it back. */
export interface Drain {
  drain(admin: GatewayAdmin, node: string, init: DrainInit): Promise<unknown>
  undrain(admin: GatewayAdmin, node: string, signal: AbortSignal): Promise<unknown>
}

export interface VerifyOptions {
  readonly namespace: string
  /** Bits per second. Undefined: any throughput will do. */
  readonly leastBits?: number
  /** How long the throughput is measured. */
  readonly seconds: number
  /** Set if a gateway may be drained. */
  readonly failover?: Drain
}

export interface VerifyInit extends VerifyOptions {
  readonly clock: Clock
  readonly signal: AbortSignal
  readonly say: (text: string) => void
}

/**
 * All checks of some directions, which run at the same time but for those that measure or drain. Rejects only with the
 * signal's reason, and after all calls have ended.
 */
export async function verifyWays(
  ends: readonly (readonly [caller: ProbeCaller, server: KubeMember])[],
  init: VerifyInit,
): Promise<readonly CheckRow[]> {
  const ways = ends.map(([caller, server]) => new Way(caller, server, init))
  await allOf(ways.map((way) => way.call()))
  for (const way of ways) await way.measure()
  await allOf(ways.map((way) => way.refuse()))
  return ways.flatMap((way) => way.rows)
}

/** Rejects only after all have ended. */
async function allOf(work: readonly Promise<void>[]): Promise<void> {
  const failed = (await Promise.allSettled(work)).find(({ status }) => status === 'rejected')
  if (failed !== undefined) throw (failed as PromiseRejectedResult).reason
}

/** The checks of a stage run at the same time, and build on those of the stages before. */
const STAGES: readonly (readonly CheckName[])[] = [
  ['import'],
  ['name', 'srv', 'search', 'tcp', 'udp', 'headless', 'node-to-pod'],
  ['large-tcp', 'large-udp', 'source', 'pod-to-pod', 'policy-allowed'],
]
/** What a throughput call takes, other calls lack; and a drain moves the calls of both directions. */
const MEASURES: readonly CheckName[] = ['throughput', 'failover']

const CALL_MS = 3000
const TRIES = 3
/** A refusal is shown by silence, so it is waited for only so long. */
const REFUSAL_MS = 2000
const POLICY_MS = 45_000

class Way {
  readonly #caller: ProbeCaller
  readonly #server: KubeMember
  readonly #init: VerifyInit
  readonly #way: string
  readonly #plan: readonly PlannedCheck[]
  readonly #rows = new Map<PlannedCheck, CheckRow>()
  #ips: readonly string[] = []
  #resolved: Promise<ProbeResult<'resolve'>> | undefined

  constructor(caller: ProbeCaller, server: KubeMember, init: VerifyInit) {
    this.#caller = caller
    this.#server = server
    this.#init = init
    this.#way = `${caller.id} → ${server.id}`
    const { facts } = server
    const names = caller.families.filter((one) => facts.families.includes(one))
    this.#plan = planChecks({
      caller: caller.kind,
      exposure: facts.exposure,
      families: names.map((one) => (one === 'IPv4' ? 4 : 6)),
      failover: init.failover !== undefined,
      gateways: Math.max(facts.gateways.length, caller.gateways?.count ?? 0),
      knowsPolicies: facts.knowsPolicies,
    })
  }

  /** In the order of the plan. */
  get rows(): readonly CheckRow[] {
    return this.#plan.flatMap((planned) => this.#rows.get(planned) ?? [])
  }

  async call(): Promise<void> {
    for (const stage of STAGES) {
      await allOf(this.#plan.filter(({ check }) => stage.includes(check)).map((planned) => this.#run(planned)))
    }
  }

  async measure(): Promise<void> {
    for (const planned of this.#plan.filter(({ check }) => MEASURES.includes(check))) await this.#run(planned)
  }

  /** What takes something away comes last. */
  async refuse(): Promise<void> {
    for (const planned of this.#plan.filter((one) => !this.#rows.has(one))) await this.#run(planned)
  }

  async #run(planned: PlannedCheck): Promise<void> {
    const { clock, say, signal } = this.#init
    signal.throwIfAborted()
    const began = clock.monotonic()
    const left = this.#leftOut(planned)
    const outcome = left ?? (await this.#check(planned))
    const row = rowOf({ ...planned, isSkipped: left !== undefined }, this.#way, outcome, clock.monotonic() - began)
    this.#rows.set(planned, row)
    say(`${this.#way}  ${checkText(row)}: ${row.result === 'fail' ? 'FAILED' : row.result}, ${row.measured}\n`)
  }

  /** Why a check is left out: by plan, or because what it builds on has not passed. Undefined if it is made. */
  #leftOut({ after, family, skip }: PlannedCheck): Outcome | undefined {
    if (skip !== undefined) return { measured: skip.why, reason: skip.reason }
    const before = this.rows.filter(({ check }) => check === after)
    const lacking = before.find((row) => row.result !== 'pass' && (row.family ?? family) === (family ?? row.family))
    return lacking && { measured: `${checkText(lacking)} has not passed`, reason: 'VerifySkipped' }
  }

  #check({ check, family = 4, expects }: PlannedCheck): Promise<Outcome> {
    const service = this.#target(this.#ipOf(family), family)
    const checks: Readonly<Record<CheckName, () => Promise<Outcome>>> = {
      import: () => this.#import(),
      name: () => this.#resolve((value) => nameOutcome(value.addresses, this.#ips, family)),
      srv: () => this.#resolve((value) => srvOutcome(value, PROBE_PORT)),
      search: () => this.#resolve(searchOutcome),
      // By name, so that the resolver of the pod is in the way too.
      tcp: () => this.#answered('pod', 'tcp', this.#target(this.#name('balanced'), family)),
      udp: () => this.#answered('pod', 'udp', this.#target(this.#name('balanced'), family)),
      headless: () => this.#answered('pod', 'tcp', this.#target(this.#name('headless'), family)),
      'large-tcp': () => this.#value({ op: 'bulk', to: service, bytes: LARGE_BYTES, timeoutMs: 20_000 }, bulkOutcome),
      'large-udp': () =>
        this.#value({ op: 'datagrams', to: service, sizes: DATAGRAM_SIZES }, (value) => datagramOutcome(value, family)),
      source: () => this.#source(service, family),
      'pod-to-pod': () => this.#podToPod(family, expects),
      'node-to-pod': () => this.#toPod(family, PROBE_PORT, (to) => this.#answered('node', 'tcp', to)),
      throughput: () => this.#throughput(service),
      failover: () => this.#failover(this.#target(this.#ipOf(this.#first()), this.#first())),
      'policy-allowed': () => this.#answered('pod', 'tcp', this.#target(this.#ipOf(this.#first()), this.#first())),
      'policy-refused': () => this.#refusedByPolicy(),
    }
    return checks[check]()
  }

  #first(): Family {
    return this.#ips[0]?.includes(':') === true ? 6 : 4
  }

  #ipOf(family: Family): string {
    return this.#ips.find((ip) => ip.includes(':') === (family === 6)) ?? this.#name('balanced')
  }

  #name(which: 'balanced' | 'headless'): string {
    return `${this.#server.names[which]}.${this.#init.namespace}.svc.clusterset.local`
  }

  #target(host: string, family: Family, port = PROBE_PORT): Target {
    const { dns } = this.#caller
    return { host, port, family, ...(dns === undefined ? {} : { dns }) }
  }

  async #value<Call extends ProbeCall>(
    call: Call,
    read: (value: ProbeResults[Call['op']]) => Outcome,
  ): Promise<Outcome> {
    const result = await this.#caller.call('pod', call, this.#init.signal)
    return result.ok ? read(result.value) : failureOutcome(result)
  }

  async #import(): Promise<Outcome> {
    const { clock, signal } = this.#init
    const { balanced, headless } = this.#server.names
    const began = clock.monotonic()
    const [ips, others] = await Promise.all(
      [balanced, headless].map((one) => this.#caller.imported(one, this.#server.id, signal)),
    )
    if (ips === undefined || others === undefined) {
      return { measured: `${ips === undefined ? balanced : headless} is missing`, reason: 'VerifyNotImported' }
    }
    this.#ips = ips
    return { measured: `${ips.join(', ')} after ${msText(clock.monotonic() - began)}` }
  }

  /** The name of the balanced service, and the SRV records of its TCP port: one call for several checks. */
  async #resolve(read: (value: ProbeResults['resolve']) => Outcome): Promise<Outcome> {
    const { dns } = this.#caller
    const name = this.#name('balanced')
    const call = { op: 'resolve', name, srv: `_probe._tcp.${name}`, ...(dns === undefined ? {} : { dns }) } as const
    this.#resolved ??= this.#caller.call('pod', call, this.#init.signal)
    const result = await this.#resolved
    return result.ok ? read(result.value) : failureOutcome(result)
  }

  #hello(from: 'pod' | 'node', protocol: 'tcp' | 'udp', to: Target): Promise<ProbeResult<'hello'>> {
    const call = { op: 'hello', protocol, to, tries: TRIES, timeoutMs: CALL_MS } as const
    return this.#caller.call(from, call, this.#init.signal)
  }

  async #answered(from: 'pod' | 'node', protocol: 'tcp' | 'udp', to: Target): Promise<Outcome> {
    return answerOutcome(await this.#hello(from, protocol, to), this.#server.id)
  }

  async #refused(to: Target): Promise<Outcome> {
    const call = { op: 'hello', protocol: 'tcp', to, tries: 1, timeoutMs: REFUSAL_MS } as const
    return refusalOutcome(await this.#caller.call('pod', call, this.#init.signal))
  }

  async #source(to: Target, family: Family): Promise<Outcome> {
    const wanted = this.#caller.sources(family)
    const result = await this.#hello('pod', 'tcp', to)
    if (!result.ok) return failureOutcome(result)
    if (wanted === undefined) return { measured: `seen as ${result.value.from}; its own address here is not known` }
    return sourceOutcome(result.value.from, wanted)
  }

  #podToPod(family: Family, expects: PlannedCheck['expects']): Promise<Outcome> {
    return this.#toPod(family, HIDDEN_PORT, (to) =>
      expects === 'answer' ? this.#answered('pod', 'tcp', to) : this.#refused(to),
    )
  }

  #toPod(family: Family, port: number, work: (to: Target) => Promise<Outcome>): Promise<Outcome> {
    const [address] = this.#server.addresses('server', family) ?? []
    if (address !== undefined) return work(this.#target(address, family, port))
    const measured = `the pod has no IPv${family} address that other members know`
    return Promise.resolve({ measured, reason: 'VerifyNotAnswered' })
  }

  #throughput(to: Target): Promise<Outcome> {
    const { leastBits, seconds } = this.#init
    return this.#value({ op: 'throughput', to, streams: 1, seconds }, (value) => throughputOutcome(value, leastBits))
  }

  /** Takes the offer back, and waits until a call is no longer answered. */
  async #refusedByPolicy(): Promise<Outcome> {
    const { clock, signal } = this.#init
    const family = this.#first()
    const goesOn = (to: Target): Promise<Outcome> => {
      return this.#value({ op: 'refused', to, timeoutMs: REFUSAL_MS, limitMs: POLICY_MS }, refusedOutcome)
    }
    await this.#server.offerTo([], signal)
    const began = clock.monotonic()
    const { exposure } = this.#server.facts
    const isKeptOut = exposure === 'exports' && this.#server.addresses('server', family)?.[0] !== undefined
    const all = await Promise.all([
      goesOn(this.#target(this.#ipOf(family), family)),
      // Only the exporter keeps out who calls the pod itself: the caller has no rule for that.
      ...(isKeptOut ? [this.#toPod(family, PROBE_PORT, goesOn)] : []),
    ])
    const failed = all.find(({ reason }) => reason !== undefined)
    if (failed !== undefined) return failed
    const [first] = all
    return { measured: `${first.measured} ${msText(clock.monotonic() - began)} after the offer was taken back` }
  }

  /** Drains a gateway of the called member, or of the calling one where that alone has two. */
  #failover(to: Target): Promise<Outcome> {
    const { failover, signal, say } = this.#init
    const server = this.#server
    const ofServer: DrainSide | undefined = failover && {
      id: server.id,
      freeGateway: (by) => server.freeGateway(by),
      drain: (node, by) => failover.drain(server.admin, node, by),
      noteDrained: (node, by) => server.noteDrained(node, by),
      takeBack: (node) => server.takeBack(node),
    }
    const side = server.facts.gateways.length > 1 ? ofServer : this.#caller.gateways?.side
    if (side === undefined) {
      return Promise.resolve({ measured: 'no gateway can be drained', reason: 'OneGatewayOnly', isSkipped: true })
    }
    const call = { op: 'steady', to, seconds: FAILOVER_SECONDS, intervalMs: STEADY_MS } as const
    return checkFailover({ side, call: () => this.#caller.call('pod', call, signal), way: this.#way, signal, say })
  }
}

export function checkText({ check, family }: Pick<CheckRow, 'check' | 'family'>): string {
  return family === undefined ? check : `${check} IPv${family}`
}
