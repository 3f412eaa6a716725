/**
 * `sealane site install`, `site uninstall` and `site restart`: writes the systemd units of this node, and starts them
 * one by one. systemctl is called with an argument list.
 */
import { request } from 'node:http'
import { existsSync, mkdirSync, rmSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { componentsOf, hasSeveralHubs } from '../../compose/site/site.ts'
import { STATUS_PORTS } from '../../install/values/values.ts'
import type { SiteConfig } from '../../kubeapi/files/files.ts'
import { parseAddressPort } from '../../model/addresses/addresses.ts'
import { MAX_LANE } from '../../model/lanes/lanes.ts'
import { LANE_BASE_PORT } from '../../model/model.ts'
import { nearName } from '../../model/values/values.ts'
import { readMemberIdentity } from '../../protocol/membership/membership.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import { ProgramError, UserError, formatDuration, runProgram } from '../../runtime/runtime.ts'
import { type CommandContext, quoted } from '../context/context.ts'
import { soundSite } from './check.ts'
import {
  HIDDEN_FOLDERS,
  TARGET,
  type Unit,
  type UnitPart,
  pageOf,
  planUnitChanges,
  planUnits,
  unitPathProblem,
} from './plan-units.ts'
import { AS_ROOT, UNIT_FOLDER, ownUnits, writeUnit } from './unit-files.ts'

/** Where units are, and how systemd is reached. */
export interface ServiceHost {
  /** The folder of the administrator's units (systemd.unit(5)). */
  readonly units: string
  /** Exists if systemd runs (sd_booted(3)). */
  readonly booted: string
  readonly env: NodeJS.ProcessEnv
  readonly clock: Clock
  /** The port of each part's status page on loopback. */
  readonly statusPorts: Readonly<Record<UnitPart, number>>
  /** Folders that services do not see. */
  readonly hidden: readonly string[]
}

/** The next after those of the other parts. */
const HUB_STATUS_PORT = 9475

/** This machine. */
export function systemHost(clock: Clock): ServiceHost {
  const places = { units: UNIT_FOLDER, booted: '/run/systemd/system', hidden: HIDDEN_FOLDERS }
  return { ...places, env: process.env, clock, statusPorts: { ...STATUS_PORTS, hub: HUB_STATUS_PORT } }
}

export interface InstallUnitsInit {
  /** The path of the site file. */
  readonly site: string
  readonly node: string
  /** Absolute path of the program `sealane`. */
  readonly program: string
  /** Prints the units and changes nothing. */
  readonly dryRun: boolean
  /** How long each unit may take until it is ready, in milliseconds. */
  readonly timeoutMs: number
}

/**
 * Writes and starts the units of this node, one after the other, each once the one before it is ready. A unit that is
 * as planned is neither written nor restarted. Throws UserError, before any change: 2 for a site, a node or a path that
 * cannot be used, 1 if systemd does not run or if a unit of that name is somebody else's. Later: 1 if a unit cannot be
 * written or started, or is not ready in time; the units after it then stay as they were.
 */
export async function installUnits(init: InstallUnitsInit, context: CommandContext, host: ServiceHost): Promise<void> {
  const { output } = context
  const { site: file, node, program, dryRun } = init
  const { config, nodes } = await soundSite(file, 'nothing was installed')
  checkNode(config, nodes, node)
  checkPaths(config, program, host.hidden)
  const wanted = planUnits({
    ...{ program, node, site: config },
    // The acting hub of several runs the agent itself.
    parts: componentsOf({ config }, node).filter((part) => part !== 'agent' || !hasSeveralHubs(config)),
    dnsPorts: config.dns.listen.map((address) => parseAddressPort(address, 'spec.dns.listen').port),
    hubPorts: config.hub.listen.map((address) => parseAddressPort(address, 'spec.hub.listen').port),
    lanePorts: config.gateways
      .filter((gateway) => gateway.node === node)
      .flatMap(({ listenPort = LANE_BASE_PORT }) => [listenPort, listenPort + MAX_LANE]),
    overlayPort: config.overlay.port,
    statusPorts: host.statusPorts,
  })
  const changes = planUnitChanges(wanted, ownUnits(host.units))
  if (dryRun) {
    for (const { name, text } of wanted) output.answer(`# ${join(host.units, name)}\n${text}\n`)
    output.remark(changes.text === '' ? 'these units are installed already\n' : changes.text)
    return
  }
  requireSystemd(host, 'site install')
  checkOwners(config)
  await checkPagesAreFree(changes.changed, ownUnits(host.units), context.signal)
  mkdirSync(config.state, { recursive: true })
  output.remark(changes.text)
  await stopUnits(changes.removed, host, context.signal)
  const isJoined = (await readMemberIdentity(config.identity).catch(() => undefined)) !== undefined
  // Each file is written just before its unit starts: if a unit fails, the next install goes on from there.
  for (const unit of changes.changed) {
    await writeUnit(unit, host.units)
    await systemctl(['daemon-reload'], host, context.signal)
    await systemctl(['--quiet', 'enable', unit.name], host, context.signal)
    if (unit.page === undefined) continue
    await systemctl(['restart', unit.name], host, context.signal)
    if (isJoined) await untilReady(unit.name, unit.page, { ...init, host }, context)
  }
  await systemctl(['--quiet', 'enable', ...wanted.map(({ name }) => name)], host, context.signal)
  await systemctl(['start', TARGET], host, context.signal)
  output.answer(installedText(config, node, changes.text === ''))
  if (!isJoined) {
    output.remark(`the site has not joined yet, and its parts try again every 5 s until it has:\n  ${joinText(file)}\n`)
  }
}

/** The command that joins a site. */
export function joinText(file: string): string {
  return `sealane join --site ${file} --token-file token.txt`
}

function installedText({ name }: SiteConfig, node: string, isSame: boolean): string {
  return isSame
    ? `the units of node ${node} of site ${name} are installed already\n`
    : `the units of node ${node} of site ${name} are installed: systemctl status 'sealane*'\n`
}

/** Stops and removes the units that Sealane has written, and nothing else. Throws UserError as installUnits() does. */
export async function uninstallUnits({ signal, output }: CommandContext, host: ServiceHost): Promise<void> {
  const names = [...ownUnits(host.units).keys()]
  if (names.length === 0) {
    output.answer('no units of Sealane are installed\n')
    return
  }
  requireSystemd(host, 'site uninstall')
  await stopUnits(names, host, signal)
  output.answer(`removed: ${names.join(', ')}\n`)
  output.remark(
    'state and links of this node stay; to remove them too: sealane leave, and on each node: sealane leave --node NAME\n',
  )
}

/**
 * Restarts the units that run, one after the other, each once the one before it is ready. A unit that was stopped stays
 * stopped. Throws UserError if one is not ready in time; the units after it then keep running as they are.
 */
export async function restartUnits(
  { timeoutMs }: Pick<InstallUnitsInit, 'timeoutMs'>,
  context: CommandContext,
  host: ServiceHost,
): Promise<void> {
  const { signal, output } = context
  const installed = [...ownUnits(host.units)].filter(([name]) => name !== TARGET)
  if (installed.length === 0) {
    output.answer('no units of Sealane are installed\n')
    return
  }
  requireSystemd(host, 'site restart')
  await systemctl(['daemon-reload'], host, signal)
  for (const [name, text] of installed) {
    const page = pageOf(text)
    // Only a unit that was active is waited for: one that waits for the join is restarted by systemd anyway.
    if (page === undefined || !(await isActive(name, host, signal))) {
      output.remark(`${name} does not run and was left as it is\n`)
      continue
    }
    await systemctl(['restart', name], host, signal)
    await untilReady(name, page, { timeoutMs, host }, context)
  }
}

function checkNode({ file, objects }: SiteConfig, nodes: readonly string[], node: string): void {
  if (nodes.includes(node)) return
  const meant = nearName(node, nodes)
  const hint = meant === undefined ? '' : `; did you mean ${meant}?`
  throw new UserError(`--node ${quoted(node)}: expected a Node of ${objects}, one of ${nodes.join(', ')}${hint}`, {
    exitCode: 2,
    hint: `see: sealane site check --site ${file}`,
  })
}

function checkPaths({ file, state, objects }: SiteConfig, program: string, hidden: readonly string[]): void {
  const rows = { 'the site file': file, 'spec.objects': objects, 'spec.state': state, 'the program': program }
  for (const [what, path] of Object.entries(rows)) {
    const problem = unitPathProblem(path, hidden)
    if (problem === undefined) continue
    const hint =
      path === program
        ? 'install the Debian package (npm run package)'
        : 'move the folder of the site, for example to /etc/sealane'
    throw new UserError(`${what}: ${quoted(path)}: ${problem}`, { exitCode: 2, hint })
  }
}

/** On NFS with root_squash, files of root belong to this user. */
const SQUASHED = 65534

/** The services have no CAP_DAC_OVERRIDE: files of another user could neither be read nor written. */
function checkOwners({ folder, objects, state, identity }: SiteConfig): void {
  for (const path of [folder, objects, state, identity]) {
    const found = statSync(path, { throwIfNoEntry: false })
    if (found === undefined || found.uid === process.getuid?.() || found.uid === SQUASHED) continue
    throw new UserError(`${path} belongs to user ${found.uid}: expected root, as which the services run`, {
      hint: `run: chown -R root:root ${path}`,
    })
  }
}

/** Refuses to start a unit beside a process that was started by hand. */
async function checkPagesAreFree(
  units: readonly Unit[],
  installed: ReadonlyMap<string, string>,
  signal: AbortSignal,
): Promise<void> {
  for (const { name, page } of units) {
    if (page === undefined || installed.has(name)) continue
    const isTaken = (await askReady(page, signal)) !== 'nothing listens'
    if (!isTaken) continue
    throw new UserError(`${page}, the status page of ${name}, is in use`, {
      hint: 'if "sealane up" runs by hand on this machine, stop it first: links and routes stay meanwhile',
    })
  }
}

async function stopUnits(names: readonly string[], host: ServiceHost, signal: AbortSignal): Promise<void> {
  if (names.length === 0) return
  await systemctl(['--quiet', 'disable', '--now', ...names], host, signal)
  for (const name of names) rmSync(join(host.units, name))
  await systemctl(['daemon-reload'], host, signal)
  // A unit that has failed would stay in the list of units. The others are not known any more, which is an error too.
  await runSystemctl(['reset-failed', ...names], host, signal)
}

function requireSystemd({ booted }: ServiceHost, command: string): void {
  if (existsSync(booted)) return
  throw new UserError(`${command}: systemd does not run here: ${booted} does not exist`, {
    hint: 'in a container or under another init, run: sealane up --site FILE --node NAME; to see the units: --dry-run',
  })
}

/** Longer than a unit may take to stop (TimeoutStopSec) and to start. */
const SYSTEMCTL_MS = 150_000
const MAX_OUTPUT = 1024 * 1024

async function runSystemctl(
  args: readonly string[],
  { env }: ServiceHost,
  signal: AbortSignal,
): Promise<{ readonly code: number; readonly text: string }> {
  try {
    const init = { env, timeoutMs: SYSTEMCTL_MS, maxOutputBytes: MAX_OUTPUT, signal }
    const { code, stderr } = await runProgram('systemctl', ['--no-ask-password', ...args], init)
    return { code, text: stderr.toString().trim() }
  } catch (cause) {
    signal.throwIfAborted()
    if (!(cause instanceof ProgramError)) throw cause
    throw new UserError(`systemctl ${args.join(' ')}: ${cause.message}`, { cause })
  }
}

async function systemctl(args: readonly string[], host: ServiceHost, signal: AbortSignal): Promise<void> {
  const { code, text } = await runSystemctl(args, host, signal)
  if (code === 0) return
  throw new UserError(`systemctl ${args.join(' ')} ended with ${code}: ${text === '' ? 'no message' : text}`, {
    hint: process.getuid?.() === 0 ? 'see: journalctl --unit "sealane*"' : AS_ROOT,
  })
}

async function isActive(name: string, host: ServiceHost, signal: AbortSignal): Promise<boolean> {
  return (await runSystemctl(['--quiet', 'is-active', name], host, signal)).code === 0
}

const ASK_AGAIN_MS = 200
const ONE_ANSWER_MS = 5000
/** For a message: reasons of a part take a few lines. */
const MAX_ANSWER = 1000

/** Gives `ready`, `nothing listens`, or why the part is not ready. Rejects with the signal's reason. */
function askReady(page: string, signal: AbortSignal): Promise<string> {
  const limited = AbortSignal.any([signal, AbortSignal.timeout(ONE_ANSWER_MS)])
  return new Promise((resolve, reject) => {
    const asked = request(`http://${page}/readyz`, { signal: limited, agent: false }, (response) => {
      let text = ''
      const finish = (): void => resolve(response.statusCode === 200 ? 'ready' : text.trim().replaceAll('\n', '; '))
      response.setEncoding('utf8')
      response.on('data', (chunk: string) => {
        text += chunk
        if (text.length < MAX_ANSWER) return
        finish()
        asked.destroy()
      })
      response.on('end', finish)
      response.on('error', finish)
    })
    asked.on('error', (error: NodeJS.ErrnoException) => {
      if (signal.aborted) reject(signal.reason as Error)
      else resolve(error.code === 'ECONNREFUSED' ? 'nothing listens' : `no answer: ${error.message}`)
    })
    asked.end()
  })
}

type ReadyInit = Pick<InstallUnitsInit, 'timeoutMs'> & { readonly host: ServiceHost }

/** Throws UserError with the last answer if the part is not ready in time. */
async function untilReady(
  name: string,
  page: string,
  { timeoutMs, host: { clock } }: ReadyInit,
  { signal, output }: CommandContext,
): Promise<void> {
  const end = clock.now() + timeoutMs
  for (;;) {
    const answer = await askReady(page, signal)
    if (answer === 'ready') break
    if (clock.now() >= end) {
      throw new UserError(`${name} is not ready after ${formatDuration(timeoutMs)}: ${answer}`, {
        hint: `units after it were left as they are; see: curl -s ${page}/readyz, and: journalctl --unit ${name}`,
      })
    }
    await clock.sleep(ASK_AGAIN_MS, signal)
  }
  output.remark(`${name} is ready\n`)
}
