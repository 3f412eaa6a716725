/**
 * `sealane console`: a page about this cluster or site, or about all members as their broker knows them, for browsers on
 * this machine unless a token lets others in.
 */
import { spawn } from 'node:child_process'
import { open } from 'node:fs/promises'
import { type Command, Option } from 'commander'
import { type Clock, SystemClock } from '../../reconcile/reconcile.ts'
import { type HostPort, UserError, checkReadable, messageOf, parseHostPort } from '../../runtime/runtime.ts'
import {
  type CommandContext,
  type KubeTarget,
  LOCAL_SITE,
  type TargetOptions,
  addKubeOptions,
  addTargetOptions,
  clustersetOption,
  durationOption,
  envOf,
  kubeTarget,
  logLevelOption,
  lookTimeoutOption,
  parsed,
  quoted,
  seenOtherwise,
  shellWord,
  stateOption,
  statusListenOption,
  subcommand,
  targetFlags,
  targetToAsk,
  targetToSee,
} from '../context/context.ts'
import { deniedHere } from './denied.ts'
import { flowsHere } from './flows.ts'
import { pagesOption, pagesToAsk } from './status.ts'
import type { LogThreshold } from '../../runtime/logging/logging.ts'
import type { ConsoleSource, ConsoleSources, ContextSource } from '../../compose/console/console.ts'
import type { FactsInit } from '../status/console/console-source.ts'

const TEXT =
  'Serves a page about this cluster or site, about several clusters, or with --broker about all members, and opens it ' +
  'in the browser: problems, clusters, links, services with shares, refused packets. It shows what you may read and ' +
  'changes nothing. Ends with Ctrl-C.'
const STANDARD_LISTEN = '127.0.0.1:9480'
const MAX_TOKEN = 1024
const MIN_TOKEN = 16
const MAX_PEM = 1 << 20

interface ConsoleOptions extends Omit<TargetOptions, 'context'> {
  readonly context?: readonly string[]
  readonly bundle?: string
  readonly broker?: string | true
  readonly clusterset?: string
  readonly cluster: boolean
  readonly listen: HostPort
  readonly tokenFile?: string
  readonly tlsCert?: string
  readonly tlsKey?: string
  readonly browser: boolean
  readonly ask?: readonly string[]
  readonly interval: number
  readonly timeout: number
}

/** Adds `sealane console`. */
export function addConsoleCommand(program: Command, context: CommandContext): void {
  const command = subcommand(program, 'console', TEXT, 'sealane console --context c1 --context c2')
  // The options of `console serve` have the same names.
  command.enablePositionalOptions()
  addServeCommand(command, context)
  addTargetOptions(command, seenOtherwise(LOCAL_SITE), true)
    .addOption(
      new Option('--bundle <file>', 'show a file written by "sealane gather" instead of the live state').conflicts([
        ...['context', 'kubeconfig', 'site', 'ask'],
      ]),
    )
    .addOption(
      new Option(
        '--broker [directory]',
        "show what the broker knows of all members: the broker in the cluster of --context, or else this machine's, with its state directory",
      ).conflicts(['bundle', 'site', 'ask']),
    )
    .addOption(clustersetOption())
    .addOption(
      new Option(
        '--cluster',
        'show what the console in the cluster shows (sealane join --console); needs only the rights of Role sealane-console-reader',
      )
        .default(false)
        .conflicts(['bundle', 'site', 'ask', 'interval', 'broker']),
    )
    .addOption(
      new Option('--listen <host:port>', 'address of the page; port 0: any; other than loopback needs --token-file')
        .argParser(parsed((text) => parseHostPort(text, '--listen', true)))
        .default(parseHostPort(STANDARD_LISTEN), STANDARD_LISTEN),
    )
    .option('--token-file <file>', `file with the token that the page asks for, at least ${MIN_TOKEN} characters`)
    .option('--tls-cert <file>', 'certificate of the page, as PEM; with --tls-key')
    .option('--tls-key <file>', 'private key of the certificate, as PEM')
    .option('--no-browser', 'print the address only')
    .addOption(pagesOption())
    .addOption(durationOption('--interval', 'time between two looks', 2000, { minMs: 1000, maxMs: 3_600_000 }))
    .addOption(lookTimeoutOption(5000))
    .action(async (options: ConsoleOptions) => {
      if (options.cluster) {
        await showClusterConsole(command, options, context)
        return
      }
      const { readPageFiles, runConsole } = await import('../../compose/console/console.ts')
      const isStandard = command.getOptionValueSource('listen') !== 'cli'
      const access = await readAccess(options)
      const [name, ...more] = new Set(options.context)
      checkBroker(options, more.length)
      const contexts =
        name === undefined || more.length === 0 ? undefined : await sourcesOf([name, ...more], options, context)
      const page = readPageFiles()
      const work = (sources: ConsoleSources): Promise<void> =>
        runConsole(
          {
            ...{ ...sources, page, listen: options.listen, anyPort: isStandard, ...access },
            onOpen: (url) => shown(url, options, context),
          },
          context.signal,
        )
      if (contexts !== undefined) {
        await work({ contexts })
        return
      }
      const { kubeconfig, bundle, site } = options
      const named =
        name === undefined ? undefined : { ...(kubeconfig === undefined ? {} : { kubeconfig }), context: name }
      if (options.broker !== undefined) {
        const state = typeof options.broker === 'string' ? options.broker : LOCAL_STATE
        const isHere = typeof options.broker === 'string'
        const at = named ?? (isHere ? undefined : targetToSee(command, context, state))
        await work({ source: await brokerView(at, state, options, context) })
        return
      }
      const kube = named ?? (bundle === undefined ? targetToSee(command, context, site) : undefined)
      await withSource(kube, options, context, (source) => work({ source }))
    })
}

/** The standard state directory of a broker. */
const LOCAL_STATE = stateOption().defaultValue as string

/** Throws UserError. */
function checkBroker({ broker, context, kubeconfig, clusterset }: ConsoleOptions, moreContexts: number): void {
  const wrong = (text: string): UserError => new UserError(text, { exitCode: 2 })
  if (broker === undefined) {
    if (clusterset !== undefined) throw wrong('--clusterset: expected --broker as well')
    return
  }
  if (moreContexts > 0) throw wrong('--broker: expected at most one --context, that of the broker')
  if (typeof broker === 'string' && (context ?? kubeconfig) !== undefined) {
    throw wrong(`--broker ${quoted(broker)}: expected no directory for a broker in a cluster`)
  }
}

async function brokerView(
  kube: KubeTarget | undefined,
  state: string,
  { clusterset, interval: everyMs, timeout: timeoutMs }: ConsoleOptions,
  context: CommandContext,
): Promise<ConsoleSource> {
  const { brokerSource } = await import('../status/console/broker-source.ts')
  const init = { kube, state, clusterset, everyMs, timeoutMs, clock: new SystemClock() }
  if (kube === undefined) return brokerSource(init, context)
  const { contextNames } = await import('../../kubeapi/kube/kubeconfig.ts')
  return brokerSource({ ...init, current: contextNames({ ...kube, env: envOf(context) }).current }, context)
}

function shown(url: string, { browser }: ConsoleOptions, context: CommandContext): void {
  context.output.answer(`${url}\n`)
  if (browser) openBrowser(url, context)
}

/** Throws UserError for several contexts, and without a cluster. */
async function showClusterConsole(command: Command, options: ConsoleOptions, context: CommandContext): Promise<void> {
  const { context: names = [], kubeconfig, listen, timeout: timeoutMs } = options
  const [name, ...more] = new Set(names)
  if (more.length > 0) throw new UserError('--cluster: expected at most one --context', { exitCode: 2 })
  const file = kubeconfig === undefined ? {} : { kubeconfig }
  const kube = name === undefined ? targetToAsk(command, context) : { ...file, context: name }
  if (kube === undefined) {
    throw new UserError('--cluster: expected a cluster', { exitCode: 2, hint: 'name it: --context NAME' })
  }
  const access = await readAccess(options)
  const anyPort = command.getOptionValueSource('listen') !== 'cli'
  const { withClusterConsole } = await import('../status/console/cluster-console.ts')
  const { runForwardedConsole } = await import('../../compose/console/console.ts')
  await withClusterConsole({ kube, timeoutMs }, context, (forward) =>
    runForwardedConsole(
      { ...access, forward, listen, anyPort, onOpen: (url) => shown(url, options, context) },
      context.signal,
    ),
  )
}

interface ServeOptions extends Omit<TargetOptions, 'site'> {
  readonly listen: HostPort
  readonly statusListen: readonly string[]
  readonly logLevel: LogThreshold
  readonly interval: number
  readonly timeout: number
}

const SERVE_TEXT =
  'Serves the console in a cluster, behind the proxy of its API server, to readers with a token of ServiceAccount ' +
  'sealane-console-reader. "sealane join --console" installs it, and "sealane console --cluster" shows it.'
const IN_POD = '~/.kube/config, else the ServiceAccount of this pod'

function addServeCommand(console: Command, context: CommandContext): void {
  const command = subcommand(console, 'serve', SERVE_TEXT, 'sealane console serve --listen 0.0.0.0:9480')
  addKubeOptions(command, IN_POD)
    .addOption(
      new Option('--listen <host:port>', 'address of the console, which speaks TLS')
        .argParser(parsed((text) => parseHostPort(text, '--listen', true)))
        .default(parseHostPort(STANDARD_LISTEN), STANDARD_LISTEN),
    )
    .addOption(statusListenOption('address of /readyz and /metrics; may be given several times', '127.0.0.1:9475'))
    .addOption(durationOption('--interval', 'time between two looks', 2000, { minMs: 1000, maxMs: 3_600_000 }))
    .addOption(lookTimeoutOption(5000))
    .addOption(logLevelOption())
    .action(async ({ kubeconfig, context: name, interval: everyMs, timeout: timeoutMs, ...more }: ServeOptions) => {
      const kube = kubeTarget({ ...(kubeconfig && { kubeconfig }), ...(name && { context: name }) }) ?? {}
      const { serveClusterConsole } = await import('../status/console/cluster-console.ts')
      await serveClusterConsole({ ...more, kube, everyMs, timeoutMs }, context)
    })
}

interface PageAccess {
  readonly token?: string
  readonly tls?: { readonly cert: Buffer; readonly key: Buffer }
}

/** Throws UserError. */
async function readAccess({ tokenFile, tlsCert, tlsKey }: ConsoleOptions): Promise<PageAccess> {
  if ((tlsCert === undefined) !== (tlsKey === undefined)) {
    throw new UserError('--tls-cert and --tls-key: expected both, or neither', { exitCode: 2 })
  }
  const token = tokenFile === undefined ? undefined : await readToken(tokenFile)
  return {
    ...(token === undefined ? {} : { token }),
    ...(tlsCert === undefined || tlsKey === undefined
      ? {}
      : {
          tls: {
            cert: await readShort('--tls-cert', tlsCert, MAX_PEM),
            key: await readShort('--tls-key', tlsKey, MAX_PEM),
          },
        }),
  }
}

async function readToken(file: string): Promise<string> {
  const token = (await readShort('--token-file', file, MAX_TOKEN)).toString().trim()
  if (/^[\x21-\x7e]+$/.test(token) && token.length >= MIN_TOKEN) return token
  throw new UserError(`--token-file ${file}: expected one word of at least ${MIN_TOKEN} characters`, {
    hint: `make one: head -c 24 /dev/urandom | base64 > ${shellWord(file)}`,
  })
}

async function readShort(flag: string, file: string, most: number): Promise<Buffer> {
  try {
    checkReadable(file)
    await using handle = await open(file, 'r')
    const { bytesRead, buffer } = await handle.read(Buffer.alloc(most + 1), 0, most + 1)
    if (bytesRead > most) throw new Error(`expected at most ${most} bytes`)
    return buffer.subarray(0, bytesRead)
  } catch (cause) {
    throw new UserError(`${flag} ${file}: ${messageOf(cause)}`, { cause })
  }
}

/** Throws UserError for too many, and for one that the kubeconfig does not have: waiting would not bring it. */
async function sourcesOf(
  names: readonly string[],
  { kubeconfig, interval: everyMs, timeout: timeoutMs }: ConsoleOptions,
  context: CommandContext,
): Promise<readonly ContextSource[]> {
  const { MOST_CONTEXTS } = await import('../../compose/console/console.ts')
  if (names.length > MOST_CONTEXTS) {
    throw new UserError(`--context: ${names.length} contexts: expected at most ${MOST_CONTEXTS}`, { exitCode: 2 })
  }
  const { contextNames } = await import('../../kubeapi/kube/kubeconfig.ts')
  const file = kubeconfig === undefined ? {} : { kubeconfig }
  const known = contextNames({ ...file, env: envOf(context) }).names
  const unknown = names.find((name) => !known.includes(name))
  if (unknown !== undefined) {
    throw new UserError(`--context ${unknown}: the kubeconfig has no such context`, {
      exitCode: 2,
      hint: 'see: kubectl config get-contexts',
    })
  }
  const { contextSources } = await import('../status/console/console-source.ts')
  const init: FactsInit = { everyMs, timeoutMs, clock: new SystemClock(), pages: [] }
  return contextSources(
    names.map((name) => ({ ...file, context: name })),
    init,
    context,
  )
}

async function withSource(
  kube: KubeTarget | undefined,
  { bundle, site, ask, interval, timeout: timeoutMs }: ConsoleOptions,
  context: CommandContext,
  work: (source: ConsoleSource) => Promise<void>,
): Promise<void> {
  const sources = await import('../status/console/console-source.ts')
  if (bundle !== undefined) {
    const { readBundle } = await import('../bundle/read-bundle.ts')
    const flags = `--bundle ${shellWord(bundle)}`
    return work(sources.bundleSource(await readBundle(bundle), flags))
  }
  const init: FactsInit = { everyMs: interval, timeoutMs, clock: new SystemClock(), pages: await pagesToAsk(ask) }
  if (kube !== undefined) {
    const { contextNames } = await import('../../kubeapi/kube/kubeconfig.ts')
    const { current } = contextNames({ ...kube, env: envOf(context) })
    return sources.withKubeSource(kube, { ...init, flags: targetFlags(kube, current) }, context, work)
  }
  const flags = `--site ${shellWord(site)}`
  const denied = (signal: AbortSignal): ReturnType<typeof deniedHere> => deniedHere(ask, signal)
  const flows = (signal: AbortSignal): ReturnType<typeof flowsHere> => flowsHere(ask, signal)
  return work(sources.siteSource(site, { ...init, flags, denied, flows }, context))
}

/** A program that opens a page and fails does so at once. Later exits are those of a browser that a person closed. */
const OPENING_MS = 2000

/**
 * Without a display, and where no program opens pages, the printed address has to do. The browser has a process group
 * of its own: it outlives the console, and Ctrl-C does not reach it.
 */
export function openBrowser(url: string, context: CommandContext, clock: Clock = new SystemClock()): void {
  const env = envOf(context)
  if ((env['DISPLAY'] ?? '') === '' && (env['WAYLAND_DISPLAY'] ?? '') === '') return
  const began = clock.monotonic()
  const remark = (): void => {
    if (!context.signal.aborted) context.output.remark('no browser could be opened: open the address\n')
  }
  const opening = spawn('xdg-open', [url], { env: { ...env }, detached: true, stdio: 'ignore' })
  opening.once('error', remark)
  opening.once('exit', (code) => {
    if (code !== 0 && clock.monotonic() - began < OPENING_MS) remark()
  })
  opening.unref()
}
