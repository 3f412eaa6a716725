/** `sealane members`: every cluster of a clusterset on one screen, as each reports itself to the broker. */
import type { Command } from 'commander'
import type { MemberSummary } from '../../../compose/parts/broker-store.ts'
import type { MemberReport } from '../../../model/member-status.ts'
import { UserError } from '../../../runtime/user-error.ts'
import { unservedText } from '../../broker/unserved.ts'
import { withMembers } from '../../broker/with-members.ts'
import { type CommandContext, clustersetOption, outputOption, stateOption, subcommand } from '../../context.ts'
import { type OutputFormat, printItems } from '../../output.ts'
import { type KubeTarget, LOCAL_BROKER, addKubeOptions, kubeTarget, seenOtherwise, targetToSee } from '../../target.ts'
import { lookTimeoutOption } from '../../within-time.ts'
import { lookAgain, screenStart } from './watch.ts'

interface MembersOptions extends KubeTarget {
  readonly state: string
  readonly clusterset?: string
  readonly output: OutputFormat
  readonly timeout: number
  readonly watch: boolean
}

/** What programs get of a member. */
interface MemberLook {
  readonly id: string
  readonly state: MemberSummary['state']
  readonly lastHeardMs: number
  /** Absent: it has said nothing of itself, as one of an earlier release. */
  readonly reported?: MemberReport
}

const MEMBERS_TEXT = 'Shows how each member does, as it reports itself to the broker. sealane status there says more.'
const HINT = 'start it (sealane broker serve), or look at why it ended: sealane broker status'
/** Of one member, in a table that is not wide. */
const MAX_PROBLEMS = 3

export function addMembersCommand(program: Command, context: CommandContext): void {
  addKubeOptions(
    subcommand(program, 'members', MEMBERS_TEXT, 'sealane members --context hub --watch'),
    seenOtherwise(LOCAL_BROKER),
  )
    .addOption(stateOption())
    .addOption(clustersetOption())
    .option('--watch', 'again every two seconds, until it is interrupted', false)
    .addOption(lookTimeoutOption())
    .addOption(outputOption())
    .action(async (options: MembersOptions, command: Command) => {
      const kube = targetToSee(command, context, options.state)
      const look = async (at: KubeTarget | undefined) => {
        const all = await withMembers({ ...options, kube: at }, context, (members) => members.members())
        const unserved = await unservedText({ ...options, kube: at }, context, all)
        await printMembers(options, context, unserved === undefined ? all : all.map(asSilent))
        if (unserved !== undefined) throw new UserError(unserved, { hint: HINT, reason: 'BrokerSilent' })
      }
      await look(kube)
      // Which cluster was taken is said once.
      const again = kube && (kubeTarget(kube) ?? {})
      if (options.watch) await lookAgain(context, () => look(again))
    })
}

/** Nobody is in contact with a broker that does not run, whatever it noted before it ended. */
function asSilent(member: MemberSummary): MemberSummary {
  return member.state === 'in contact' ? { ...member, state: 'silent' } : member
}

async function printMembers(
  { output: format, watch }: MembersOptions,
  context: CommandContext,
  all: readonly MemberSummary[],
): Promise<void> {
  const { output } = context
  const looks = all.filter(({ state }) => state === 'in contact' || state === 'silent').map(lookOf)
  // A program that follows reads one document a line.
  if (watch && format === 'json') {
    output.answer(`${JSON.stringify({ items: looks })}\n`)
    return
  }
  if (watch) output.answer(format === 'yaml' ? '---\n' : screenStart(context))
  await printItems(output, format, looks, [
    { title: 'CLUSTER', cell: ({ id }) => id },
    { title: 'STATE', cell: ({ state }) => state },
    { title: 'VERSIONS', cell: ({ reported }) => reported?.versions.join(',') ?? '-' },
    { title: 'LANES', cell: ({ reported }) => (reported ? `${reported.lanes.up}/${reported.lanes.of}` : '-') },
    { title: 'EXPORTS', cell: ({ reported }) => exportsCell(reported) },
    { title: 'PROBLEMS', cell: ({ reported }) => problemsCell(reported, format === 'wide' ? Infinity : MAX_PROBLEMS) },
    { title: 'LAST HEARD', cell: ({ lastHeardMs }) => new Date(lastHeardMs).toISOString() },
  ])
}

function lookOf({ id, state, lastSeenMs, reported }: MemberSummary): MemberLook {
  return { id, state, lastHeardMs: lastSeenMs, ...(reported === undefined ? {} : { reported }) }
}

function exportsCell(reported: MemberReport | undefined): string {
  if (reported === undefined) return '-'
  const { count, failed } = reported.exports
  return failed === 0 ? `${count}` : `${count} (${failed} failed)`
}

/** They come with the worst first. */
function problemsCell(reported: MemberReport | undefined, most: number): string {
  if (reported === undefined) return '-'
  const { problems } = reported
  const named = problems.slice(0, most).map(({ code, severity, count }) => `${code} x${count} (${severity})`)
  const more = problems.length > most ? [`${problems.length - most} more`] : []
  return [...named, ...more].join(', ') || 'none'
}
