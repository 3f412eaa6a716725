/** `npm run manifests`: writes what is generated below manifests/, and removes generated files that are no more. */
import { mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { GENERATED_FOLDERS, manifestFiles } from './manifest-files.ts'

const ROOT = join(import.meta.dirname, '..', 'manifests')
const files = manifestFiles()

for (const folder of GENERATED_FOLDERS) {
  mkdirSync(join(ROOT, folder), { recursive: true })
  for (const name of readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' })) {
    const path = join(folder, name)
    if (!files.has(path) && /\.(ya?ml|json|txt)$/.test(name)) rmSync(join(ROOT, path))
  }
}
for (const [path, text] of files) {
  const target = join(ROOT, path)
  mkdirSync(dirname(target), { recursive: true })
  if (read(target) !== text) writeFileSync(target, text)
}

function read(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return undefined
  }
}
