/** Whether the programs of Prometheus are installed. */
import { spawnSync } from 'node:child_process'

/** Why a test that needs them cannot run; undefined if they are installed. */
export function promtoolMissing(): string | undefined {
  const { error } = spawnSync('promtool', ['--version'], { stdio: 'ignore' })
  return error === undefined ? undefined : 'needs the package prometheus'
}
