/** `sealane diagnose`: prints the diagnosis of one member, or of several members that are examined at once. */
import type { Comparison, Diagnosis } from '../../explain/explain.ts'
import type { Area, FactSet } from '../../explain/facts/facts.ts'
import { messageOf } from '../../runtime/runtime.ts'
import type { CommandContext, Target } from '../context/context.ts'
import { NotInstalledError, openMember } from './open-member.ts'
import type { Progress } from './probes/progress.ts'
import { STATUS_FORMAT, problemsText } from './status-screen.ts'

/**
 * One document whose fields never change their meaning. Fields with the same name as in `sealane status` mean the same.
 */
export function diagnosisDocument(
  { health, overview, problems }: Diagnosis,
  area: Area | undefined,
): Record<string, unknown> {
  const { takenAt, target, cluster, clusterset } = overview
  return { format: STATUS_FORMAT, health, area: area ?? 'all', takenAt, target, cluster, clusterset, problems }
}

export function diagnosisText(
  { health, overview, problems }: Diagnosis,
  area: Area | undefined,
  wide: boolean,
): string {
  const { cluster, clusterset } = overview
  const title = cluster === undefined ? overview.target : `${cluster} in clusterset ${clusterset ?? '-'}`
  const of = area === undefined ? '' : ` (${area})`
  return `${title}: ${health}${of}\n${problemsText(overview, problems, wide)}`
}

/** For several members: the document of each, and the findings that only a comparison of both ends shows. */
export function comparisonDocument(
  { health, members, between }: Comparison,
  missing: Several['missing'],
): Record<string, unknown> {
  const documents = members.map((one) => diagnosisDocument(one, undefined))
  return { format: STATUS_FORMAT, health, between, members: documents, notLookedAt: missing }
}

export function comparisonText(
  { health, members, between }: Comparison,
  missing: Several['missing'],
  wide: boolean,
): string {
  const [first] = members
  const title = `${members.length} member${members.length === 1 ? '' : 's'} examined: ${health}\n`
  const ends =
    first === undefined || between.length === 0 ? [] : [`between them:\n${problemsText(first.overview, between, wide)}`]
  const each = members.map((one) => diagnosisText(one, undefined, wide))
  const others = missing.map(({ target, why }) => `not examined: ${target}: ${why}\n`)
  return [title, ...ends, ...each, ...others].join('\n')
}

// Gathers the facts of several members at once: all contexts of a kubeconfig, or several sites. A member that cannot be
// examined is named.

export interface SeveralInit {
  readonly targets: readonly (Target & { readonly title: string })[]
  readonly timeoutMs: number
  readonly progress: Progress
}

export interface Several {
  readonly sets: readonly FactSet[]
  /** The members whose state is not known, with the reason. */
  readonly missing: readonly { readonly target: string; readonly why: string }[]
}

/** A cluster without Sealane is only mentioned on stderr. Rejects only after the signal. */
export async function lookAtSeveral(init: SeveralInit, context: CommandContext): Promise<Several> {
  const { targets, timeoutMs, progress } = init
  const missing: { target: string; why: string }[] = []
  const found = targets.map(async ({ title, ...target }): Promise<readonly FactSet[]> => {
    try {
      return await openMember({ ...target, pages: [], timeoutMs }, context, async (gather) => {
        const set = gather()
        await progress.follow(
          title,
          set.then(({ facts }) => facts),
        )
        return [await set]
      })
    } catch (error) {
      context.signal.throwIfAborted()
      if (error instanceof NotInstalledError) context.output.remark(`${title}: Sealane is not installed\n`)
      else missing.push({ target: title, why: messageOf(error) })
      return []
    }
  })
  const sets = (await Promise.all(found)).flat()
  return { sets, missing: missing.sort((a, b) => (a.target < b.target ? -1 : 1)) }
}
