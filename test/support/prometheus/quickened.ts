/** Rules in which a minute is a moment: an hour in production takes half a minute in a test. */
import type { RuleFile } from '../../../install/monitoring/rule-file.ts'

const SECONDS: Readonly<Record<string, number>> = { s: 1, m: 60, h: 3600, d: 86_400 }

/** Scales the durations of ranges, of offsets and of `for` to this many milliseconds for each minute. */
export function quickened({ groups }: RuleFile, msPerMinute: number): RuleFile {
  return {
    groups: groups.map(({ name, rules }) => ({
      name,
      rules: rules.map((rule) => ({
        ...rule,
        expr: quickenedQuery(rule.expr, msPerMinute),
        for: quickenedTime(rule.for, msPerMinute),
      })),
    })),
  }
}

export function quickenedQuery(expr: string, msPerMinute: number): string {
  return expr
    .replaceAll(/\[(\d+[smhd])\]/g, (_, time: string) => `[${quickenedTime(time, msPerMinute)}]`)
    .replaceAll(/offset (\d+[smhd])/g, (_, time: string) => `offset ${quickenedTime(time, msPerMinute)}`)
}

function quickenedTime(text: string, msPerMinute: number): string {
  const [, count = '0', unit = 's'] = /^(\d+)([smhd])$/.exec(text) ?? []
  return `${Math.round((Number(count) * (SECONDS[unit] ?? 1) * msPerMinute) / 60)}ms`
}
