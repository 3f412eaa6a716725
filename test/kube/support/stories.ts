/**
 * Stories that are told one after the other in one world, because a world takes longer than most of them. Each can be
 * told alone: SEALANE_STORIES=name,… chooses.
 */
import type { Test } from 'tap'

/** It asks nothing of those before it, and what it leaves is cleared away before the next. */
export type Story<World> = (t: Test, world: World) => Promise<void>

/** Those that are named, in their own order; all where none is named. Throws for a name that none of them has. */
export function chosenStories<S>(
  stories: Readonly<Record<string, S>>,
  named = process.env['SEALANE_STORIES'],
): readonly (readonly [name: string, story: S])[] {
  const names = (named ?? '').split(',').filter((name) => name !== '')
  for (const name of names) {
    if (!Object.hasOwn(stories, name)) {
      throw new Error(`SEALANE_STORIES: ${name}: expected some of ${Object.keys(stories).join(', ')}`)
    }
  }
  return Object.entries(stories).filter(([name]) => names.length === 0 || names.includes(name))
}
