/** `sealane cluster waiting|accept|refuse`: who waits for approval, and the operator's answer. */
import type { Command } from 'commander'
import { parseClusterId } from '../../model/ids.ts'
import type { WaitingSummary } from '../../compose/parts/broker-store.ts'
import { withMembers } from '../broker/with-members.ts'
import { type CommandContext, clustersetOption, outputOption, parsed, stateOption, subcommand } from '../context.ts'
import { type OutputFormat, printItems, printOne } from '../output.ts'
import { type KubeTarget, LOCAL_BROKER, addKubeOptions, seenOtherwise, targetToChange, targetToSee } from '../target.ts'
import { lookTimeoutOption } from '../within-time.ts'

/** What every one of these commands takes. */
export interface CommonOptions extends KubeTarget {
  readonly state: string
  readonly clusterset?: string
  readonly output: OutputFormat
  readonly timeout: number
}

interface AnswerOptions extends CommonOptions {
  readonly fingerprint?: string
}

export function addApprovalCommands(cluster: Command, context: CommandContext): void {
  addWaiting(cluster, context)
  addAccept(cluster, context)
  addRefuse(cluster, context)
}

/** Below the list of members; empty where nobody waits. */
export function waitingRemark(waiting: readonly WaitingSummary[]): string {
  const ids = [...new Set(waiting.filter(({ state }) => state === 'waiting').map(({ id }) => id))]
  const [first] = ids
  if (first === undefined) return ''
  return `waiting for approval: ${ids.join(', ')}; see: sealane cluster waiting\n`
}

function addWaiting(cluster: Command, context: CommandContext): void {
  const { output } = context
  const text = 'Lists clusters, and ranges of members, that wait for approval, each with its fingerprint.'
  addKubeOptions(
    subcommand(cluster, 'waiting', text, 'sealane cluster waiting --context hub'),
    seenOtherwise(LOCAL_BROKER),
  )
    .addOption(stateOption())
    .addOption(clustersetOption())
    .addOption(lookTimeoutOption())
    .addOption(outputOption())
    .action(async (options: CommonOptions, command: Command) => {
      const kube = targetToSee(command, context, options.state)
      const rows = await withMembers({ ...options, kube }, context, (members) => members.waiting())
      await printItems(output, options.output, rows, [
        { title: 'CLUSTER', cell: (row) => row.id },
        { title: 'WHAT', cell: (row) => row.what },
        { title: 'STATE', cell: (row) => row.state },
        { title: 'FINGERPRINT', cell: (row) => row.fingerprint },
        { title: 'PODS', cell: (row) => row.podCIDRs.join(',') },
        { title: 'SERVICES', cell: (row) => row.serviceCIDRs.join(',') || '-' },
        { title: 'NEEDS', cell: (row) => row.neededCIDRs.join(',') || '-', wide: true },
        { title: 'LABELS', cell: labelsCell, wide: true },
        { title: 'RELEASE', cell: (row) => row.version, wide: true },
        { title: 'FROM', cell: (row) => row.address || '-' },
        { title: 'TOKEN', cell: (row) => row.token || '-' },
        { title: 'SINCE', cell: (row) => new Date(row.sinceMs).toISOString() },
        { title: 'LAST ASKED', cell: (row) => new Date(row.lastAskedMs).toISOString(), wide: true },
        { title: 'UNTIL', cell: (row) => (row.untilMs === undefined ? '-' : new Date(row.untilMs).toISOString()) },
      ])
      if (options.output === 'table' || options.output === 'wide')
        for (const row of rows) output.remark(remarks(row, rows))
    })
}

function labelsCell({ labels }: WaitingSummary): string {
  return (
    Object.entries(labels)
      .map((pair) => pair.join('='))
      .join(',') || '-'
  )
}

/** What an operator must not miss before he accepts. */
function remarks(row: WaitingSummary, all: readonly WaitingSummary[]): string {
  const { id, what, isMember, renumbers, fingerprint } = row
  if (what === 'ranges') {
    const hit = renumbers.length > 0 ? `; if they are accepted, ${renumbers.join(', ')} get global addresses` : ''
    return `${id}: a member, which states other ranges than those that were accepted${hit}\n`
  }
  const others = all.filter((one) => one.id === id && one.what === 'join' && one.fingerprint !== fingerprint)
  const lines = [
    ...(isMember ? [`${id}: a member has this id; who is accepted takes its place\n`] : []),
    ...(renumbers.length > 0 ? [`${id}: if it joins, ${renumbers.join(', ')} get global addresses\n`] : []),
    ...(others.length > 0
      ? [`${id}: several wait under this id: ask the one that you expect for its fingerprint\n`]
      : []),
  ]
  return lines.join('')
}

function addAccept(cluster: Command, context: CommandContext): void {
  const { output } = context
  const text = 'Lets a cluster in, or ranges of a member count, that wait for approval; it takes seconds.'
  const command = subcommand(cluster, 'accept', text, 'sealane cluster accept paris --fingerprint SHA256:4fC…')
  withAnswerOptions(command).action(async (id: string, options: AnswerOptions) => {
    const kube = targetToChange(command, context)
    const init = { cluster: id, ...(options.fingerprint === undefined ? {} : { fingerprint: options.fingerprint }) }
    const given = await withMembers({ ...options, kube }, context, (members) => members.accept(init))
    const said = given.repeated
      ? `cluster ${id} (${given.fingerprint}) was accepted before: nothing was done\n`
      : `cluster ${id} (${given.fingerprint}) is accepted: ${given.token === '' ? 'its ranges count from now on' : 'it joins when it asks the next time'}\n`
    await printOne(output, options.output, given, said)
  })
}

function addRefuse(cluster: Command, context: CommandContext): void {
  const { output } = context
  const text = 'Refuses a cluster, or ranges of a member, that wait for approval.'
  const command = subcommand(cluster, 'refuse', text, 'sealane cluster refuse paris')
  withAnswerOptions(command).action(async (id: string, options: AnswerOptions) => {
    const kube = targetToChange(command, context)
    const init = { cluster: id, ...(options.fingerprint === undefined ? {} : { fingerprint: options.fingerprint }) }
    const given = await withMembers({ ...options, kube }, context, (members) => members.refuse(init))
    const said = given.repeated
      ? `cluster ${id} (${given.fingerprint}) was refused before: nothing was done\n`
      : `cluster ${id} (${given.fingerprint}) is refused\n`
    await printOne(output, options.output, given, said)
  })
}

function withAnswerOptions(command: Command): Command {
  return addKubeOptions(command, LOCAL_BROKER)
    .argument(
      '<id>',
      'as cluster waiting prints it',
      parsed((id: string) => parseClusterId(id, 'cluster')),
    )
    .addOption(stateOption())
    .addOption(clustersetOption())
    .option('--fingerprint <fingerprint>', 'only the cluster with this key, as its own "sealane join" prints it')
    .addOption(lookTimeoutOption())
    .addOption(outputOption())
}
