/** Whether all parts are of one release. */
import type { Finding } from '../finding.ts'
import { partVersions } from '../overview/part-versions.ts'
import type { World } from '../world.ts'

/** Releases that are further apart than this are not tested together. */
const TESTED_APART = 1

export function versions(world: World): readonly Finding[] {
  // What this command itself is makes no cluster unwell.
  const all = partVersions(world).filter(({ part }) => part !== 'cli')
  const different = new Set(all.map(({ version }) => version))
  if (different.size < 2) return []
  const text = all.map(({ part, version, count }) => `${part} ${version}${count > 1 ? ` (${count})` : ''}`)
  const minors = [...different].flatMap((version) => minorOf(version) ?? [])
  const isFar = Math.max(...minors) - Math.min(...minors) > TESTED_APART
  return [
    {
      reason: 'VersionSkew',
      severity: isFar ? 'degraded' : 'notice',
      subject: world.selfSubject,
      seen: text.join(', '),
      source: 'the parts themselves',
      at: world.takenAt,
    },
  ]
}

/** Of `1.4.2` 1004: releases of two numbers in one. */
function minorOf(version: string): number | undefined {
  const found = /^v?(\d{1,4})\.(\d{1,3})\b/.exec(version)
  return found === null ? undefined : Number(found[1]) * 1000 + Number(found[2])
}
