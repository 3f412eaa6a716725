/**
 * `node scripts/install-system-packages.ts PURPOSE…`: installs what is missing with apt-get when root and says so;
 * otherwise prints the command to run and exits with 1.
 */
import { spawnSync } from 'node:child_process'
import { accessSync, constants } from 'node:fs'
import { join } from 'node:path'
import { type Purpose, SYSTEM_PACKAGES } from './system-packages.ts'

const SEARCH = [...(process.env['PATH'] ?? '').split(':'), '/usr/sbin', '/sbin', '/usr/bin', '/bin']

function isInstalled(command: string): boolean {
  return SEARCH.some((directory) => {
    try {
      accessSync(join(directory, command), constants.X_OK)
      return true
    } catch {
      return false
    }
  })
}

/** Names of the packages that are missing for a purpose, sorted. */
export function missingPackages(purpose: Purpose): string[] {
  const missing = SYSTEM_PACKAGES[purpose].filter((row) => !isInstalled(row.command)).map((row) => row.name)
  return [...new Set(missing)].sort()
}

/** Installs them; gives undefined on success, else what the user must do. Progress goes to stderr. */
export function installPackages(names: readonly string[]): string | undefined {
  const command = `apt-get install -y ${names.join(' ')}`
  if (!isInstalled('apt-get')) return `missing system packages: ${names.join(' ')} (Debian names); install them first`
  if (process.getuid?.() !== 0) return `missing system packages; run as root: apt-get update && ${command}`
  process.stderr.write(`installing system packages: ${names.join(' ')}\n`)
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' }
  spawnSync('apt-get', ['update', '-qq'], { env, stdio: ['ignore', 'ignore', 'inherit'] })
  const options = ['install', '-y', '-qq', '--no-install-recommends', ...names]
  const done = spawnSync('apt-get', options, { env, stdio: ['ignore', 'ignore', 'inherit'] })
  return done.status === 0 ? undefined : `${command} failed with status ${done.status ?? 'unknown'}`
}

/** Throws with the exact command where something is missing that cannot be installed here. */
export function requirePackages(purpose: Purpose): void {
  const missing = missingPackages(purpose)
  if (missing.length === 0) return
  const problem = installPackages(missing)
  if (problem !== undefined) throw new Error(problem)
}

if (import.meta.main) {
  const purposes = process.argv.slice(2)
  if (purposes.length === 0 || !purposes.every((one) => Object.hasOwn(SYSTEM_PACKAGES, one))) {
    process.stderr.write(`usage: install-system-packages ${Object.keys(SYSTEM_PACKAGES).join('|')} …\n`)
    process.exitCode = 2
  } else {
    try {
      for (const purpose of purposes) requirePackages(purpose as Purpose)
    } catch (error) {
      process.stderr.write(`${(error as Error).message}\n`)
      process.exitCode = 1
    }
  }
}
