/** The files of Sealane's systemd units on this machine, and the program that they start. */
import { existsSync, lstatSync, mkdirSync, readFileSync, readdirSync, realpathSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { UserError, messageOf, replaceFile } from '../../runtime/runtime.ts'
import { TARGET, UNIT_HEADER, UNIT_ORDER, type Unit, pageOf, unitName } from './plan-units.ts'

/** The folder of the administrator's units (systemd.unit(5)). */
export const UNIT_FOLDER = '/etc/systemd/system'

/** The status pages of the units that are installed on this machine. Empty if there are none. */
export function installedPages(folder = UNIT_FOLDER): readonly string[] {
  return [...readUnits(folder)].flatMap(([, text]) => (isOwn(text) ? (pageOf(text) ?? []) : []))
}

/**
 * The units that Sealane has written, by name, in the order in which they are started. Throws UserError if a file of
 * such a name is somebody else's.
 */
export function ownUnits(folder: string): ReadonlyMap<string, string> {
  const found = readUnits(folder)
  for (const [name, text] of found) {
    if (isOwn(text)) continue
    throw new UserError(`${join(folder, name)} was not written by Sealane, and nothing was changed`, {
      hint: 'move the file away, or unmask the unit, then run the command again',
    })
  }
  return found
}

function isOwn(text: string): boolean {
  return text.startsWith(`${UNIT_HEADER}\n`)
}

/** All files with names of our units. What cannot be read as a file counts as empty: a masked unit is a link to /dev/null. */
function readUnits(folder: string): ReadonlyMap<string, string> {
  if (!existsSync(folder)) return new Map()
  const present = new Set(readdirSync(folder))
  const names = [TARGET, ...UNIT_ORDER.map(unitName)].filter((name) => present.has(name))
  return new Map(names.map((name) => [name, readUnit(join(folder, name))]))
}

function readUnit(path: string): string {
  return lstatSync(path).isFile() ? readFileSync(path, 'utf8') : ''
}

export async function writeUnit({ name, text }: Unit, units: string): Promise<void> {
  const path = join(units, name)
  try {
    mkdirSync(units, { recursive: true })
    await replaceFile(path, text, 0o644)
  } catch (cause) {
    throw new UserError(`${path} cannot be written: ${messageOf(cause)}`, { hint: AS_ROOT, cause })
  }
}

export const AS_ROOT = 'run the command as root'

/**
 * The path of the program that runs, as a unit names it: the one in PATH if it is the same. `main` is the file that
 * Node runs.
 */
export function ownProgram(main = process.argv[1] ?? ''): string {
  const found = realpathSync(main)
  for (let folder = dirname(found); folder !== dirname(folder); folder = dirname(folder)) {
    const program = join(folder, 'bin', 'sealane')
    if (!existsSync(program)) continue
    return isSameFile(INSTALLED_PROGRAM, program) ? INSTALLED_PROGRAM : program
  }
  throw new UserError(`${found}: expected bin/sealane in a folder above it`)
}

/** As the Debian package installs it. */
const INSTALLED_PROGRAM = '/usr/bin/sealane'

function isSameFile(path: string, file: string): boolean {
  return existsSync(path) && realpathSync(path) === realpathSync(file)
}
