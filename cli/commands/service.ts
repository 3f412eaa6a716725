/** `sealane service add|remove|list`: services of a site without Kubernetes, whose backends are checked. */
import type { Command } from 'commander'
import { InvalidNameError, guardedNamespace, parseDnsLabel } from '../../model/model.ts'
import {
  type BackendCheck,
  CHECK_INTERVAL_RANGE,
  CHECK_TIMEOUT_RANGE,
  DEFAULT_CHECK_TIMING,
  MAX_CHECK_COUNT,
  parseCheckMethod,
  timingProblem,
} from '../../model/services/services.ts'
import { UserError, formatDuration, parseDuration } from '../../runtime/runtime.ts'
import {
  type Column,
  type CommandContext,
  type OutputFormat,
  collect,
  lookTimeoutOption,
  outputOption,
  parsed,
  printItems,
  printOne,
  quoted,
  shellWord,
  siteOption,
  subcommand,
  withinTime,
} from '../context/context.ts'
import type { AddedService, BackendRow, WantedPort } from '../site/site.ts'

export function addServiceCommand(program: Command, context: CommandContext): void {
  const service = subcommand(
    program,
    'service',
    'Adds, removes and lists services of a site without Kubernetes.',
    'sealane service add web --port 8080 --backend 10.42.1.30,10.42.2.30 --check http:/healthz',
  )
  addAdd(service, context)
  addRemove(service, context)
  addList(service, context)
}

interface SiteOptions {
  readonly site: string
  readonly timeout: number
}

interface ServiceOptions {
  readonly site: string
  readonly namespace: string
}

interface AddOptions extends ServiceOptions {
  readonly port?: readonly string[]
  readonly backend?: readonly string[]
  readonly check?: string
  readonly interval?: number
  readonly timeout?: number
  readonly fall?: number
  readonly rise?: number
  readonly export?: boolean
  readonly output: OutputFormat
}

function addAdd(service: Command, context: CommandContext): void {
  const { intervalMs, timeoutMs, fall, rise } = DEFAULT_CHECK_TIMING
  const command = subcommand(
    service,
    'add',
    'Adds a service with these ports, backends and check, or changes it to have them.',
    'sealane service add web -n shop --port http:80:8080 --backend 10.42.1.30,10.42.2.30 --check http:/healthz --export',
  )
  withName(command)
    .option('--port <port>', 'a port as [name:]port[/udp][:targetPort]; may be given several times', collect(String))
    .option(
      '--backend <addresses>',
      'addresses of backends, each with or without :port, with commas between them; may be given several times',
      collect(String),
    )
    .option(
      '--check <check>',
      'tcp, tcp:PORT, http:/path, https:/path (its certificate is not verified), http:PORT/path, or none (default: tcp, or none without a TCP port)',
    )
    .option(
      '--interval <duration>',
      `time between two checks of a backend (default: ${formatDuration(intervalMs)})`,
      parsed((text) => parseDuration(text, '--interval', CHECK_INTERVAL_RANGE)),
    )
    .option(
      '--timeout <duration>',
      `time after which a check fails (default: ${formatDuration(timeoutMs)})`,
      parsed((text) => parseDuration(text, '--timeout', CHECK_TIMEOUT_RANGE)),
    )
    .option('--fall <count>', `failures in a row after which a backend is down (default: ${fall})`, countOf('--fall'))
    .option('--rise <count>', `successes in a row after which it is up again (default: ${rise})`, countOf('--rise'))
    .option('--export', 'export the service to the clusterset too (default: leave the export as it is)')
    .option('--no-export', 'withdraw the export of the service')
    .addOption(outputOption())
    .action(async (name: string, options: AddOptions) => {
      const { site: file, namespace, port = [], backend = [] } = options
      if (port.length === 0) throw usage('--port', 'at least one, such as 8080')
      if (backend.length === 0) throw usage('--backend', 'at least one, such as 10.42.1.30')
      const { parseBackends, parseServicePort } = await import('../site/plan-service.ts')
      const ports = asUsage(() => port.map(parseServicePort))
      const backends = asUsage(() => backend.flatMap(parseBackends))
      const wanted = { namespace, name, ports, backends, check: checkOf(options, ports) }
      const [{ addService }, { withSite }] = await loaded()
      const added = await withinTime(context.signal, LOOK_MS, (signal) =>
        withSite(file, { ...context, signal }, (site) => addService(site, wanted, options.export, signal)),
      )
      for (const warning of added.warnings) context.output.remark(`warning: ${warning}\n`)
      await printOne(context.output, options.output, added, addedText(added))
      remarkNext(added, file, context)
    })
}

/** Loaded on demand: the driver of a site needs more than the tree of commands. */
function loaded() {
  return Promise.all([import('../site/local-service.ts'), import('../context/open-site.ts')])
}

/** Turns the errors of parsers, which name option and value, into wrong usage. */
function asUsage<T>(parse: () => T): T {
  try {
    return parse()
  } catch (error) {
    if (!(error instanceof InvalidNameError)) throw error
    throw new UserError(error.message, { exitCode: 2, hint: 'see: sealane service add --help' })
  }
}

/** How long the command waits for the objects of the site. Its --timeout is that of a check. */
const LOOK_MS = 10_000

function usage(option: string, expected: string): UserError {
  return new UserError(`${option}: expected ${expected}`, { exitCode: 2, hint: 'see: sealane service add --help' })
}

function countOf(flag: string): (text: string) => number {
  return parsed((text) => {
    const count = /^\d{1,3}$/.test(text) ? Number(text) : 0
    if (count >= 1 && count <= MAX_CHECK_COUNT) return count
    throw new UserError(`${flag} ${quoted(text)}: expected 1 to ${MAX_CHECK_COUNT}`)
  })
}

function checkOf(options: AddOptions, ports: readonly WantedPort[]): BackendCheck | undefined {
  const { check: text = ports.some(({ protocol }) => protocol === 'TCP') ? 'tcp' : 'none' } = options
  const { interval, timeout, fall, rise } = options
  if (text === 'none') {
    const given = Object.entries({ interval, timeout, fall, rise }).find(([, value]) => value !== undefined)
    if (given !== undefined) throw usage(`--${given[0]}`, 'a --check other than none')
    return undefined
  }
  const standard = DEFAULT_CHECK_TIMING
  const intervalMs = interval ?? standard.intervalMs
  const times = {
    intervalMs,
    timeoutMs: timeout ?? Math.min(standard.timeoutMs, intervalMs),
    fall: fall ?? standard.fall,
    rise: rise ?? standard.rise,
  }
  const problem = timingProblem(times)
  if (problem !== undefined) throw usage(`--timeout ${formatDuration(times.timeoutMs)}`, problem)
  return { ...asUsage(() => parseCheckMethod(text, '--check')), ...times }
}

function addedText({ namespace, name, change, changes }: AddedService): string {
  const head = `service ${namespace}/${name} ${change === 'unchanged' ? 'is unchanged' : change}\n`
  return [head, ...changes.map((line) => `  ${line}\n`)].join('')
}

function remarkNext({ namespace, name, exported }: AddedService, file: string, { output }: CommandContext): void {
  const guard = guardedNamespace(namespace)
  if (guard !== undefined) {
    output.remark(
      `namespace ${namespace} ${guard}: it is exported and imported only with --allow-namespace ${namespace}\n`,
    )
  }
  if (exported) return
  output.remark(`other sites cannot call it yet: sealane export ${name} -n ${namespace} --site ${shellWord(file)}\n`)
}

function addRemove(service: Command, context: CommandContext): void {
  const command = subcommand(
    service,
    'remove',
    'Removes a service that was added, its backends and its export.',
    'sealane service remove web -n shop',
  )
  withName(command)
    .addOption(lookTimeoutOption())
    .action(async (name: string, { site: file, namespace, timeout }: ServiceOptions & SiteOptions) => {
      const [{ removeService }, { withSite }] = await loaded()
      const removed = await withinTime(context.signal, timeout, (signal) =>
        withSite(file, { ...context, signal }, (site) => removeService(site, { namespace, name }, signal)),
      )
      context.output.answer(`service ${namespace}/${name} ${removed ? 'removed' : 'does not exist'}\n`)
    })
}

const COLUMNS: readonly Column<BackendRow>[] = [
  { title: 'NAMESPACE', cell: (row) => row.namespace },
  { title: 'NAME', cell: (row) => row.name },
  { title: 'PORTS', cell: (row) => row.ports.join(',') || '-' },
  { title: 'EXPORTED', cell: (row) => (row.exported ? 'yes' : 'no') },
  { title: 'BACKEND', cell: (row) => row.backend ?? '-' },
  { title: 'NODE', cell: (row) => row.node ?? '-' },
  { title: 'STATE', cell: (row) => row.state },
  { title: 'SINCE', cell: (row) => row.since ?? '-' },
  { title: 'CHECK', cell: (row) => row.check ?? 'none', wide: true },
  { title: 'MESSAGE', cell: (row) => row.message ?? '-' },
]

function addList(service: Command, context: CommandContext): void {
  subcommand(
    service,
    'list',
    'Shows the services of this site, their backends and the results of the checks.',
    'sealane service list -o wide',
  )
    .addOption(siteOption())
    .addOption(lookTimeoutOption())
    .addOption(outputOption())
    .action(async ({ site: file, timeout, output: format }: SiteOptions & { readonly output: OutputFormat }) => {
      const [{ listServices }, { withSite }] = await loaded()
      await withinTime(context.signal, timeout, (signal) =>
        withSite(file, { ...context, signal, wantsAll: true }, async (site) => {
          await printItems(context.output, format, await listServices(site, signal), COLUMNS)
        }),
      )
    })
}

function withName(command: Command): Command {
  return command
    .argument(
      '<service>',
      'name of the service',
      parsed((text) => parseDnsLabel(text, 'service')),
    )
    .addOption(siteOption())
    .option(
      '-n, --namespace <name>',
      'the namespace of the service',
      parsed((text: string) => parseDnsLabel(text, 'namespace')),
      'default',
    )
}
