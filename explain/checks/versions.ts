/** Whether all parts are of one release, and whose clock is another one. */
import type { Finding } from '../finding.ts'
import { partVersions } from '../overview/part-versions.ts'
import { type World, durationText } from '../world.ts'

/** Releases that are further apart than this are not tested together. */
const TESTED_APART = 1

export function versions(world: World): readonly Finding[] {
  return [...differentVersions(world), ...commandClock(world)]
}

/** Said because all ages that other programs print are wrong by it. */
function commandClock({ clockOffsetMs, takenAt, selfSubject }: World): readonly Finding[] {
  if (clockOffsetMs === 0) return []
  const how = clockOffsetMs > 0 ? 'behind' : 'ahead of'
  const seen = `the clock here is ${durationText(Math.abs(clockOffsetMs))} ${how} that of the cluster's parts`
  const origin = { source: 'this command', at: takenAt }
  return [{ reason: 'CommandClockDiffers', severity: 'notice', subject: selfSubject, seen, ...origin }]
}

function differentVersions(world: World): readonly Finding[] {
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
