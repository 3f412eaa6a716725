/**
 * What a DaemonSet says about a maxUnavailable that a join has raised for one roll-out. The value from before is in an
 * annotation, written with the raise, so that a join that is killed leaves a trace. Pure.
 */

/** The maxUnavailable from before (apps/v1 RollingUpdateDaemonSet). Present only while it is raised. */
export const ANNOTATION_MAX_UNAVAILABLE = 'sealane.io/max-unavailable'

/** The recorded value: a number of pods, or a share such as `10%`. Undefined if none is recorded, or an invalid one. */
export function recordedMaxUnavailable(
  annotations: Readonly<Record<string, string>> | undefined,
): number | string | undefined {
  const text = annotations?.[ANNOTATION_MAX_UNAVAILABLE] ?? ''
  if (/^[1-9]\d{0,8}$/.test(text)) return Number(text)
  return /^([1-9]\d?|100)%$/.test(text) ? text : undefined
}
