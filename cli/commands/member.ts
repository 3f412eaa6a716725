/** The commands of a member: `sealane join`, `export`, `unexport`, `leave` and `uninstall`. */
import { existsSync } from 'node:fs'
import type { Command } from 'commander'
import { EXPOSURES, type Exposure } from '../../model/access/access.ts'
import { guardedNamespace, parseClusterId, parseDnsLabel } from '../../model/model.ts'
import { SystemClock } from '../../reconcile/reconcile.ts'
import { UserError, parseDuration } from '../../runtime/runtime.ts'
import { type TokenOptions, noToken, readTokenIfGiven } from '../broker/broker.ts'
import { type JoinKubeOptions, addJoinKubeOptions, refuseKubeOptions } from '../cluster/cluster.ts'
import {
  type CommandContext,
  type KubeTarget,
  type TargetOptions,
  addKubeOptions,
  addTargetOptions,
  choiceOption,
  durationOption,
  envOf,
  lookTimeoutOption,
  parsed,
  subcommand,
  targetToChange,
  targetToJoin,
  withTarget,
  withinTime,
} from '../context/context.ts'

interface JoinOptions extends TokenOptions, TargetOptions, JoinKubeOptions {
  readonly clusterId?: string
  readonly approvalTimeout?: number
  readonly expose?: Exposure
  readonly preferLocal: boolean
}

/** `sealane join`: creates a key, exchanges a token for a certificate and writes both into the site's state. */
export function addJoinCommand(program: Command, context: CommandContext): void {
  const command = subcommand(
    program,
    'join',
    'Joins a cluster, or a site without Kubernetes, to a clusterset.',
    'sealane join --context c1 --token-file token.txt',
  )
  addJoinKubeOptions(addTargetOptions(command))
    .option('--token <token>', 'the join token; --token-file keeps it out of the process list')
    .option('--token-file <file>', 'a file with the join token; - for standard input')
    .option(
      '--cluster-id <id>',
      "this cluster's id (default: the name of the site or the context)",
      parsed((text: string) => parseClusterId(text, '--cluster-id')),
    )
    .addOption(
      choiceOption(
        '--expose <what>',
        'what other clusters may call: exported services, all pods, or nothing (default: as before, exports for a new member)',
        EXPOSURES,
      ),
    )
    .option(
      '--prefer-local',
      'write the default ClusterTrafficPolicy: calls go to this cluster, else to its zone, else to its region, else to any',
      false,
    )
    .option(
      '--approval-timeout <duration>',
      'how long to wait for an operator of the broker to accept this cluster (default: until the token expires)',
      parsed((text: string) => parseDuration(text, '--approval-timeout', { minMs: 1000 })),
    )
    .action(async (options: JoinOptions) => {
      const target = targetToJoin(command, context)
      if (target !== undefined) return joinKube(target, options, context)
      refuseKubeOptions(command)
      await joinSite(options, context)
    })
}

/** A site without Kubernetes. Its files are checked before the token is read, and before its state is created. */
async function joinSite(options: JoinOptions, context: CommandContext): Promise<void> {
  const { signal, output } = context
  const { site: file, clusterId, approvalTimeout: approvalMs, expose } = options
  if (existsSync(file)) {
    const { requireSoundSite } = await import('../site/check.ts')
    await requireSoundSite(file)
  }
  const token = await readTokenIfGiven(options, { env: process.env, stdin: process.stdin, signal })
  if (token === undefined && !existsSync(file)) throw noToken()
  const { withSite } = await import('../context/open-site.ts')
  const say = (text: string): void => output.remark(`${text}\n`)
  const clock = new SystemClock()
  await withSite(file, { signal, output }, async (site) => {
    const { joinClusterset } = await import('../site/join.ts')
    const { stayingMember, stayingText } = await import('../site/rejoin.ts')
    const wanted = clusterId === undefined ? undefined : parseClusterId(clusterId, '--cluster-id')
    const member = await stayingMember(site, { token, clusterId: wanted, clock, signal, say })
    const { stateExposure } = await import('../site/exposure.ts')
    const stated = await stateExposure(site, { chosen: expose, signal, say })
    const prefer = async (): Promise<void> => {
      if (!options.preferLocal) return
      const { preferLocal } = await import('../site/prefer-local.ts')
      await preferLocal(site, { signal, say })
    }
    if (member !== undefined) {
      await stated.write()
      await prefer()
      output.answer(stayingText(member))
      return
    }
    if (token === undefined) throw noToken()
    const joined = await joinClusterset(stated.site, {
      token,
      clusterId: wanted ?? parseClusterId(site.config.name, 'site name'),
      ...{ clock, signal, approvalMs, say },
      confirm: await confirmAt(context),
    })
    await stated.write()
    await prefer()
    const global =
      joined.globalCIDRs.length === 0 ? 'its own addresses' : `global addresses ${joined.globalCIDRs.join(', ')}`
    output.answer(`${joined.cluster} has joined clusterset ${joined.clusterset} with ${global}\n`)
    output.remark(`next, on each node: sealane up --site ${file} --node NAME\n`)
  })
}

/** Undefined if there is no terminal. Scripts run a site's command too, so it asks only at a terminal. */
async function confirmAt(context: CommandContext): Promise<((question: string) => Promise<boolean>) | undefined> {
  const { terminalOf } = await import('../context/confirm.ts')
  const terminal = terminalOf(context)
  if (terminal === undefined) return undefined
  const { lineFromTerminal } = await import('../context/terminal.ts')
  return async (question) => {
    const said = await lineFromTerminal(`${question}? Type yes: `, context.signal, terminal)
    return said.trim().toLowerCase() === 'yes'
  }
}

/** Loaded on demand: a plain site needs none of it. */
async function joinKube(target: KubeTarget, options: JoinOptions, context: CommandContext): Promise<void> {
  if (target.by !== undefined && !options.dryRun && options.output === undefined) {
    const { confirm } = await import('../context/confirm.ts')
    const what = `Join the current context of ${target.by} (${envOf(context)[target.by] ?? ''})`
    await confirm({ what, yes: options.yes, command: 'sealane join --context NAME, or with --yes' }, context)
  }
  const { runJoinKube } = await import('../cluster/run-join.ts')
  await runJoinKube(target, options, context)
}

interface ExportOptions extends TargetOptions {
  readonly timeout: number
  readonly namespace: string
}

/** `sealane export` and `sealane unexport`: creates or deletes a ServiceExport among the site's objects. */
export function addExportCommands(program: Command, context: CommandContext): void {
  add(program, context, 'export', 'Exports a Service of this cluster or site to the clusterset.')
  add(program, context, 'unexport', 'Withdraws a Service of this cluster or site from the clusterset.')
}

function add(program: Command, context: CommandContext, verb: 'export' | 'unexport', description: string): void {
  addTargetOptions(subcommand(program, verb, description, `sealane ${verb} web --namespace shop --site site.yaml`))
    .argument(
      '<service>',
      'name of the Service',
      parsed((text) => parseDnsLabel(text, 'service')),
    )
    .option(
      '-n, --namespace <name>',
      'the namespace of the Service',
      parsed((text: string) => parseDnsLabel(text, 'namespace')),
      'default',
    )
    .addOption(lookTimeoutOption())
    .action(async (name: string, options: ExportOptions, command: Command) => {
      const { exportService, unexportService } = await import('../site/export.ts')
      const work = verb === 'export' ? exportService : unexportService
      const target = { kube: targetToChange(command, context), site: options.site }
      const service = { namespace: options.namespace, name }
      const said = await withinTime(context.signal, options.timeout, (signal) =>
        withTarget(target, { ...context, signal }, (site) => work(site, service, signal)),
      )
      context.output.answer(said)
      const guard = verb === 'export' ? guardedNamespace(options.namespace) : undefined
      if (guard !== undefined) context.output.remark(guardRemark(options.namespace, guard))
    })
}

function guardRemark(namespace: string, guard: string): string {
  return (
    `namespace ${namespace} ${guard}: this cluster, the broker and each importing cluster accept the export only with ` +
    `--allow-namespace ${namespace}; see the result with sealane show exports\n`
  )
}

interface LeaveOptions extends TargetOptions {
  readonly timeout: number
  readonly force: boolean
  readonly yes: boolean
  readonly node?: string
}

/**
 * `sealane leave`: removes a site or a cluster from the clusterset, and Sealane's configuration from the kernels of its
 * machines.
 */
export function addLeaveCommand(program: Command, context: CommandContext): void {
  const { signal, output } = context
  const command = subcommand(
    program,
    'leave',
    'Removes a site or a cluster from the clusterset, and removes Sealane from its nodes.',
    'sealane leave --site site.yaml',
  )
  addTargetOptions(command)
    .addOption(durationOption('--timeout', 'how long to wait for the nodes', 30_000))
    .option('--yes', 'do not ask for confirmation', false)
    .option('--force', 'leave even if the broker cannot be reached or a node does not clean up', false)
    .option(
      '--node <name>',
      'only remove Sealane from the kernel of this node, after the site has left without it',
      parsed((text) => parseDnsLabel(text, '--node')),
    )
    .action(async (options: LeaveOptions) => {
      const target = targetToJoin(command, context)
      if (target !== undefined) {
        if (options.node !== undefined) {
          throw new UserError('--node: only for a site file: in a Kubernetes cluster each node cleans up by itself', {
            exitCode: 2,
          })
        }
        const { runLeaveKube } = await import('../cluster/leave/run-leave.ts')
        return runLeaveKube(target, { ...options, timeoutMs: options.timeout }, context)
      }
      if (options.node !== undefined) {
        const { leaveNode } = await import('../site/leave-node.ts')
        return leaveNode(options.node, options, { signal, output })
      }
      const { withSite } = await import('../context/open-site.ts')
      await withSite(options.site, { signal, output }, async (site) => {
        const { confirmSiteLeave, leaveClusterset } = await import('../site/leave.ts')
        await confirmSiteLeave(site, options, context)
        const id = await leaveClusterset(site, {
          timeoutMs: options.timeout,
          force: options.force,
          signal,
          say: (text) => output.remark(`${text}\n`),
        })
        output.answer(`${id} has left the clusterset\n`)
      })
    })
}

interface UninstallOptions extends KubeTarget {
  readonly crds: boolean
  readonly deleteData: boolean
  readonly evictMembers: boolean
  readonly yes: boolean
  readonly force: boolean
  readonly timeout: number
}

/** `sealane uninstall`: removes all of Sealane from a cluster, the broker included. */
export function addUninstallCommand(program: Command, context: CommandContext): void {
  const command = subcommand(
    program,
    'uninstall',
    'Leaves the clusterset, and removes Sealane and its broker from a cluster.',
    'sealane uninstall --context c1 --crds',
  )
  addKubeOptions(command)
    .option('--crds', 'remove the CRDs too; those of the Kubernetes project only if nothing uses them', false)
    .option(
      '--delete-data',
      "delete the broker's volume and Service too: members, addresses, certificate authority",
      false,
    )
    .option(
      '--evict-members',
      'remove the broker and evict its members, even if members are in contact or cannot be listed',
      false,
    )
    .option('--yes', 'do not ask for confirmation', false)
    .option('--force', 'continue even if the broker cannot be reached or a node does not clean up', false)
    .addOption(durationOption('--timeout', 'how long to wait for each step', 60_000))
    .action(async (options: UninstallOptions) => {
      const target = targetToChange(command, context)
      if (target === undefined) {
        throw new UserError(
          'uninstall: expected --context, --kubeconfig or KUBECONFIG, because there is no default cluster',
          { exitCode: 2 },
        )
      }
      const { runUninstall } = await import('../cluster/leave/run-leave.ts')
      await runUninstall(target, { ...options, timeoutMs: options.timeout }, context)
    })
}
