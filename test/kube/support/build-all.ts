/**
 * Builds what the tests of this tier link from Go, before any test has begun: its first build may take ten minutes. As
 * a program it does so and ends.
 */
import { coreDnsMissing, coreDnsProgram } from '../coredns/run-coredns.ts'
import { engineProgram } from '../network-policies/run-engine.ts'
import { goVersion } from './build-programs.ts'
import { kubePrograms } from './kube-programs.ts'
import { kubeletPrograms } from './node.ts'
import { renderPrograms } from './render-programs.ts'

/** Throws with what the compiler says. Without Go there is nothing to build, and each test says what it lacks. */
export async function buildAll(): Promise<void> {
  await kubePrograms()
  if (goVersion() === undefined) return
  await kubeletPrograms()
  if (coreDnsMissing() === undefined) await coreDnsProgram()
  await engineProgram()
  await renderPrograms()
}

if (import.meta.main) await buildAll()
