/**
 * `sealane verify` and `sealane benchmark`, which make probe pods in two members and call from one to the other, and
 * the hidden command that runs in those pods.
 */
import { type Command, Option } from 'commander'
import { isDnsLabel } from '../../model/model.ts'
import { ExitWith, UserError, exitOnceWritten, messageOf } from '../../runtime/runtime.ts'
import {
  type CommandContext,
  type KubeTarget,
  type OpenSite,
  type OutputFormat,
  type TargetOptions,
  addTargetOptions,
  collect,
  durationOption,
  outputOption,
  parsed,
  printOne,
  quoted,
  shellWord,
  subcommand,
  targetToChange,
  throwingUsageErrors,
} from '../context/context.ts'
import {
  type ProbeCaller,
  EXIT_CODES,
  EXIT_UNKNOWN,
  PROBE_COMMAND,
  type Drain,
  type GatewayAdmin,
  type ProbeAdmin,
  type SessionInit,
  type SessionNames,
  type UserService,
} from '../status/status.ts'
import { unknownError } from './status.ts'

interface EndOptions extends TargetOptions {
  readonly toContext?: string
  readonly toKubeconfig?: string
  readonly namespace?: string
  readonly image?: string
  readonly timeout: number
  readonly output: OutputFormat
  readonly failover?: boolean
}

interface VerifyCommandOptions extends EndOptions {
  readonly minThroughput?: number
  readonly seconds: number
  readonly failover: boolean
  readonly junit?: string
  readonly service?: { readonly namespace: string; readonly name: string }
}

const VERIFY_TEXT =
  'Checks calls between two members with probe pods, which it removes at the end: names, TCP, UDP, long transfers, ' +
  'source addresses, policies. The exit codes are those of status; 3 also means that no call was made.'

/** `sealane verify`: real checks between two members, from nothing to a table. */
export function addVerifyCommand(program: Command, context: CommandContext): void {
  const made = subcommand(program, 'verify', VERIFY_TEXT, 'sealane verify --context c1 --to-context c2')
  const command = addEnds(throwingUsageErrors(made, EXIT_UNKNOWN))
    .addOption(
      new Option('--min-throughput <rate>', 'bits per second that one connection must have, such as 50M').argParser(
        parsed(parseRate),
      ),
    )
    .addOption(secondsOption(2))
    .option(
      '--failover',
      'also drain one gateway of the called cluster, or of this site, count lost calls, and undrain it',
      false,
    )
    .addOption(
      new Option(
        '--service <namespace/name>',
        'of a site: check an imported service of yours instead of a probe; nothing is made anywhere',
      )
        .argParser(parsed(parseService))
        .conflicts(['context', 'kubeconfig', 'toContext', 'toKubeconfig']),
    )
    .option('--junit <file>', 'also write the result as JUnit XML')
    .addOption(outputOption())
    .action(async (options: VerifyCommandOptions) => {
      try {
        const code = await verify(options, context, command)
        if (code !== 0) throw new ExitWith(code)
      } catch (error) {
        // An interrupt is no success: the checks have not passed.
        if (error === context.signal.reason) throw new ExitWith(EXIT_UNKNOWN)
        throw unknownError(error)
      }
    })
}

interface BenchmarkCommandOptions extends EndOptions {
  readonly seconds: number
  readonly pings: number
  readonly node?: string
  readonly toNode?: string
}

const BENCHMARK_TEXT =
  'Measures throughput, latency, loss and jitter between two members with probe pods, and inside the calling cluster ' +
  'in the same run. Exit codes: 0 all was measured, 1 something was not, 2 wrong usage.'

/** `sealane benchmark`: figures of calls between two members, with those inside one beside them. */
export function addBenchmarkCommand(program: Command, context: CommandContext): void {
  const made = subcommand(program, 'benchmark', BENCHMARK_TEXT, 'sealane benchmark --context c1 --to-context c2')
  const command = addEnds(made)
    .option('--node <name>', 'the node of the calling pod (default: one without a gateway, if there is one)')
    .option('--to-node <name>', 'the node of the called pod (default: one without a gateway, if there is one)')
    .addOption(secondsOption(5))
    .addOption(
      new Option('--pings <count>', 'round trips of the latency measurement')
        .argParser(parsed((text) => parseCount(text, '--pings', 20_000)))
        .default(2000),
    )
    .addOption(outputOption())
    .action(async (options: BenchmarkCommandOptions) => {
      try {
        if (!(await benchmark(options, context, command))) throw new ExitWith(1)
      } catch (error) {
        if (error === context.signal.reason) throw new ExitWith(1)
        throw error
      }
    })
}

function addEnds(command: Command): Command {
  return addTargetOptions(command)
    .option('--to-context <name>', 'the context of the called cluster')
    .option('--to-kubeconfig <file>', 'the kubeconfig of --to-context (default: that of --kubeconfig)')
    .addOption(
      new Option(
        '--namespace <name>',
        'a namespace of both clusters for the probes (default: one is made and removed)',
      ).argParser(parsed(parseNamespace)),
    )
    .option('--image <name>', 'the image of the probe pods (default: that of the agent in each cluster)')
    .addOption(durationOption('--timeout', 'how long to wait for pods and imports', 90_000, { minMs: 1 }))
}

function secondsOption(standard: number): Option {
  return new Option('--seconds <count>', 'how long each throughput measurement lasts')
    .argParser(parsed((text) => parseCount(text, '--seconds', 60)))
    .default(standard)
}

function parseCount(text: string, flag: string, most: number): number {
  const count = /^\d{1,6}$/.test(text) ? Number(text) : 0
  if (count >= 1 && count <= most) return count
  throw new UserError(`${flag} ${quoted(text)}: expected a whole number from 1 to ${most}`)
}

function parseNamespace(text: string): string {
  if (isDnsLabel(text)) return text
  throw new UserError(`--namespace ${quoted(text)}: expected an RFC 1123 label: 1 to 63 of a-z, 0-9 and -`)
}

const RATE_UNITS = { '': 1, k: 1e3, M: 1e6, G: 1e9 } as const

/** `50M` as bits per second. */
function parseRate(text: string): number {
  const [, digits = '', unit = ''] = /^(\d{1,6}(?:\.\d{1,3})?)([kMG]?)$/.exec(text) ?? []
  if (digits === '')
    throw new UserError(`--min-throughput ${quoted(text)}: expected bits per second such as 50M or 1.5G`)
  return Number(digits) * RATE_UNITS[unit as keyof typeof RATE_UNITS]
}

function parseService(text: string): { namespace: string; name: string } {
  const [namespace = '', name = '', ...more] = text.split('/')
  if (isDnsLabel(namespace) && isDnsLabel(name) && more.length === 0) return { namespace, name }
  throw new UserError(`--service ${quoted(text)}: expected namespace/name`)
}

/** What a run works on: two clusters, or a site and a cluster. */
type Ends =
  | { readonly kind: 'clusters'; readonly admins: readonly [ProbeAdmin, ProbeAdmin] }
  | { readonly kind: 'site'; readonly caller: ProbeCaller; readonly admin: ProbeAdmin }

/** Opens both ends for `work`. Throws UserError if one is missing. */
async function withEnds<T>(
  options: EndOptions,
  { names, init }: { readonly names: SessionNames; readonly init: SessionInit },
  context: CommandContext,
  command: Command,
  work: (ends: Ends) => Promise<T>,
): Promise<T> {
  const { withAdmin } = await import('../context/with-admin.ts')
  const from = targetToChange(command, context)
  const { toContext, toKubeconfig = from?.kubeconfig } = options
  if (toContext === undefined && options.toKubeconfig === undefined) {
    const hint = from === undefined ? '; or --service NAMESPACE/NAME for an imported service of yours' : ''
    throw new UserError(`${command.name()}: expected --to-context, the cluster to call${hint}`, { exitCode: 2 })
  }
  const to: KubeTarget = {
    ...(toContext === undefined ? {} : { context: toContext }),
    ...(toKubeconfig === undefined ? {} : { kubeconfig: toKubeconfig }),
  }
  const { clock } = init
  if (from === undefined) {
    return withSiteCaller(options, names, init, context, (caller) =>
      withAdmin(to, clock, context, ({ admin }) => work({ kind: 'site', caller, admin })),
    )
  }
  return withAdmin(from, clock, context, (one) =>
    withAdmin(to, clock, context, (two) => work({ kind: 'clusters', admins: [one.admin, two.admin] })),
  )
}

async function withSiteCaller<T>(
  { site: file, failover = false }: Pick<EndOptions, 'site' | 'failover'>,
  { run, namespace }: SessionNames,
  { clock, timeoutMs, say, drain }: SessionInit,
  context: CommandContext,
  work: (
    caller: ProbeCaller,
    services: (of: { namespace: string; name: string }) => Promise<UserService>,
  ) => Promise<T>,
): Promise<T> {
  const { withSite } = await import('../context/open-site.ts')
  const { siteCaller } = await import('../status/verify/site-caller.ts')
  const { signal } = context
  // Only the machine that holds the site's folder, and whose hub acts, can drain a gateway.
  return withSite(file, { ...context, anyNode: !failover }, async (site) => {
    const { api, config } = site
    const [memberships, clusters, imports] = [api.cache('Membership'), api.cache('Cluster'), api.cache('ServiceImport')]
    await Promise.all([memberships, clusters, imports].map((cache) => cache.whenSynced(signal)))
    const id = memberships.list()[0]?.spec.clusterId
    if (id === undefined) {
      throw new UserError(`${config.file}: this site is no member of a clusterset`, {
        hint: 'join it first: sealane join --help',
      })
    }
    const cluster = clusters.list().find(({ spec }) => spec.id === id)
    const gateways =
      failover && drain !== undefined ? await gatewaysOf(site, id, { drain, say, clock, signal }) : undefined
    const caller = siteCaller({
      ...{ id, cluster, dnsListen: config.dns.listen, namespace, run, clock, timeoutMs },
      ...(gateways === undefined ? {} : { gateways }),
    })
    return work(caller, (of) => {
      const found = imports.get(of.name, of.namespace)
      if (found === undefined) throw new UserError(`--service ${of.namespace}/${of.name}: this site does not import it`)
      const { ips = [], ports } = found.spec
      const exporters = (found.status?.clusters ?? []).map((one) => one.cluster)
      return Promise.resolve({ ...of, ips, ports, exporters })
    })
  })
}

/** The gateways of this site for the check `failover`. */
async function gatewaysOf(
  site: OpenSite,
  id: string,
  { drain, say, clock, signal }: { readonly drain: Drain } & Pick<SessionInit, 'say' | 'clock' | 'signal'>,
): Promise<NonNullable<ProbeCaller['gateways']>> {
  const { activeGateways } = await import('../status/verify/check-failover.ts')
  const { endLeftDrains, siteGateways } = await import('../status/verify/site-gateways.ts')
  const { siteAdmin } = await import('../site/site-admin.ts')
  const admin = siteAdmin(site)
  const init: Parameters<typeof siteGateways>[0] = {
    ...{ id, admin, say, now: () => clock.now(), flags: ` --site ${shellWord(site.config.file)}` },
    drain: (at, node, by) => drain.drain(at, node, by),
    undrain: (at, node, by) => drain.undrain(at, node, by),
  }
  // A gateway whose drain has just ended still says that it is drained.
  const active = [...(await activeGateways(admin, signal)), ...(await endLeftDrains(init, signal))]
  return { count: new Set(active).size, side: siteGateways(init) }
}

async function sessionOf(
  { namespace, image, timeout: timeoutMs }: EndOptions,
  { signal, output }: CommandContext,
): Promise<{ readonly names: SessionNames; readonly init: SessionInit }> {
  const { SystemClock } = await import('../../reconcile/clock.ts')
  const { sessionNames } = await import('../status/verify/verify-session.ts')
  const { drainGateway, undrainGateway } = await import('../cluster/drain-gateway.ts')
  const clock = new SystemClock()
  const say = (text: string): void => output.remark(text)
  const drain = {
    drain: (admin: GatewayAdmin, node: string, by: Parameters<Drain['drain']>[2]) =>
      drainGateway(admin, node, { clock, say, ...by, timeoutMs: 20_000, force: false }),
    undrain: (admin: GatewayAdmin, node: string, by: AbortSignal) => undrainGateway(admin, node, { say, signal: by }),
  }
  const init = {
    ...{ clock, signal, say, timeoutMs, drain },
    ...(namespace === undefined ? {} : { namespace }),
    ...(image === undefined ? {} : { image }),
  }
  return { names: sessionNames(init), init }
}

async function verify(options: VerifyCommandOptions, context: CommandContext, command: Command): Promise<number> {
  const { verifyClusters, verifyFromSite, verifyService } = await import('../status/verify/verify-session.ts')
  const { verifyJunit, verifyReport, verifyText } = await import('../status/verify/verify-report.ts')
  const { service, minThroughput, seconds, failover, junit, output: format } = options
  if (junit !== undefined) await checkWritable(junit)
  const session = await sessionOf(options, context)
  const { names, init } = session
  const { drain } = init
  const asked = {
    ...{ seconds },
    ...(minThroughput === undefined ? {} : { leastBits: minThroughput }),
    ...(failover && drain !== undefined ? { failover: drain } : {}),
  }
  const rows =
    service === undefined
      ? await withEnds(options, session, context, command, (ends) =>
          ends.kind === 'site'
            ? verifyFromSite(ends.caller, ends.admin, asked, names, init)
            : verifyClusters(ends.admins, asked, names, init),
        )
      : await withSiteCaller(options, names, init, context, async (caller, find) =>
          verifyService(caller, await find(service), init),
        )
  const members = [...new Set(rows.flatMap(({ way }) => way.split(' → ')))].sort()
  const report = verifyReport(rows, { ...names, members })
  await printOne(context.output, format, report, verifyText(report))
  if (junit !== undefined) {
    const { writeFile } = await import('node:fs/promises')
    await writeFile(junit, verifyJunit(report)).catch((error: unknown) => {
      throw notWritten(junit, error)
    })
  }
  return report.health === 'unknown' ? EXIT_UNKNOWN : EXIT_CODES[report.health]
}

/** Throws UserError before a run of minutes whose result would be lost. Leaves no file behind that was not there. */
async function checkWritable(file: string): Promise<void> {
  const { open, rm, stat } = await import('node:fs/promises')
  const isNew = await stat(file).then(
    () => false,
    () => true,
  )
  try {
    await (await open(file, 'a')).close()
    if (isNew) await rm(file)
  } catch (error) {
    throw notWritten(file, error)
  }
}

function notWritten(file: string, cause: unknown): UserError {
  return new UserError(`--junit ${quoted(file)} cannot be written: ${messageOf(cause)}`, { cause })
}

/** True if everything was measured. */
async function benchmark(
  options: BenchmarkCommandOptions,
  context: CommandContext,
  command: Command,
): Promise<boolean> {
  const { benchmarkClusters, benchmarkFromSite } = await import('../status/verify/verify-session.ts')
  const { benchmarkText } = await import('../status/verify/benchmark.ts')
  const session = await sessionOf(options, context)
  const { names, init } = session
  const all = await withEnds(options, session, context, command, (ends) =>
    ends.kind === 'site'
      ? benchmarkFromSite(ends.caller, ends.admin, options, names, init)
      : benchmarkClusters(ends.admins, options, names, init),
  )
  await printOne(context.output, options.output, { items: all }, benchmarkText(all))
  return all.every(({ failed }) => failed.length === 0)
}

interface ServeOptions {
  readonly run: string
  readonly member: string
  readonly pod: string
  readonly port: readonly number[]
}

/**
 * `sealane probe serve|call|packets`: the hidden command of probe pods, and of route agents' pods. Help does not list it,
 * because users run `verify`, `benchmark` and `explain --probe`.
 */
export function addProbeCommand(program: Command, context: CommandContext): void {
  const probe = throwingUsageErrors(program.command(PROBE_COMMAND, { hidden: true })).helpCommand(false)
  throwingUsageErrors(probe.command('serve'))
    .description('Answers the calls of one run of verify until it is stopped.')
    .requiredOption('--run <id>', 'the run whose calls are answered')
    .requiredOption('--member <id>', 'the id of this cluster')
    .requiredOption('--pod <name>', 'the name of this pod')
    .requiredOption(
      '--port <number>',
      'a port to listen on; the first one also for UDP',
      collect((text) => parseCount(text, '--port', 65_535)),
    )
    .action(async ({ port: ports, ...options }: ServeOptions) => {
      const { serveProbe } = await import('../status/verify/probe-server.ts')
      await checkRun(options.run)
      const server = await serveProbe({ ...options, ports })
      context.output.remark(`answers on port ${server.ports.join(', ')}\n`)
      try {
        const { signal } = context
        if (!signal.aborted) await new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }))
      } finally {
        await server.close()
      }
    })
  throwingUsageErrors(probe.command('call'))
    .description('Makes calls at the same time, and prints the result of each as a line of JSON for verify.')
    .argument('<calls...>', 'the calls as JSON')
    .requiredOption('--run <id>', 'the run')
    .action(async (texts: readonly string[], { run }: { readonly run: string }) => {
      const { MOST_CALLS, parseCall } = await import('../status/verify/probe-wire.ts')
      const { callProbe } = await import('../status/verify/probe-client.ts')
      await checkRun(run)
      if (texts.length > MOST_CALLS) {
        throw new UserError(`calls: ${texts.length}: expected at most ${MOST_CALLS}`, { exitCode: 2 })
      }
      const { signal } = context
      const results = await Promise.all(texts.map(parseCall).map((call) => callProbe(call, { run, signal })))
      context.output.answer(results.map((result) => `${JSON.stringify(result)}\n`).join(''))
      // The resolver of the machine cannot be interrupted. It would keep the process, and verify waits for its end.
      const isHeld = results.some((result) => !result.ok && result.failure === 'no-name')
      if (isHeld) exitOnceWritten()
    })
  throwingUsageErrors(probe.command('packets'))
    .description('Follows the packets of one call here, and sends them if the task says so, for explain --probe.')
    .argument('<task>', 'the task as JSON')
    .action(async (text: string) => {
      const { parseProbeTask, probeMachine } = await import('../status/path/probe-machine.ts')
      const { END_LINE, READY_LINE } = await import('../status/path/follow-in-pod.ts')
      const task = parseProbeTask(text)
      const onReady = (): void => context.output.answer(`${READY_LINE}\n`)
      const until = task.send === undefined ? { until: lineOfInput(END_LINE) } : {}
      const report = await probeMachine({ task, onReady, ...until }, context.signal)
      context.output.answer(`${JSON.stringify(report)}\n`)
      exitOnceWritten()
    })
}

async function checkRun(run: string): Promise<void> {
  const { isRun } = await import('../status/verify/probe-wire.ts')
  if (!isRun(run)) throw new UserError(`--run ${quoted(run)}: expected 16 hexadecimal digits`, { exitCode: 2 })
}

/** Resolves when this line comes on standard input, or that ends. */
function lineOfInput(line: string): Promise<void> {
  return new Promise((resolve) => {
    let heard = ''
    process.stdin.setEncoding('utf8').on('data', (text: string) => {
      heard = `${heard}${text}`.slice(-100)
      if (heard.includes(line)) resolve()
    })
    process.stdin.on('close', resolve).on('error', () => resolve())
  })
}
