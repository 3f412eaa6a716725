/** Facts of several members at once: all contexts of a kubeconfig, or several sites. One that cannot be looked at is named. */
import type { FactSet } from '../../explain/facts/fact.ts'
import { messageOf } from '../../runtime/thrown.ts'
import type { CommandContext } from '../context.ts'
import { NotInstalledError, openMember } from '../status/open-member.ts'
import type { Target } from '../open-target.ts'
import type { Progress } from './progress.ts'

export interface SeveralInit {
  readonly targets: readonly (Target & { readonly title: string })[]
  readonly timeoutMs: number
  readonly progress: Progress
}

export interface Several {
  readonly sets: readonly FactSet[]
  /** Of these nobody knows how they do. */
  readonly missing: readonly { readonly target: string; readonly why: string }[]
}

/** Clusters without Sealane are told on standard error, and nothing else. Rejects only after the signal. */
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
      if (error instanceof NotInstalledError) context.output.remark(`${title}: Sealane is not installed there\n`)
      else missing.push({ target: title, why: messageOf(error) })
      return []
    }
  })
  const sets = (await Promise.all(found)).flat()
  return { sets, missing: missing.sort((a, b) => (a.target < b.target ? -1 : 1)) }
}
