# SPDX-License-Identifier: Apache-2.0
"""Builds pagedkv._core: SWIG over the C headers, and the sources in core/.

The C library is, in this order:
  PAGEDKV_PREFIX        an installation: include/ and lib/ below it
  the sources around    include/ and build/lib (run `make` first): the library becomes part of the package, unless
                        PAGEDKV_RUNTIME_DIR says where it will be found
  pkg-config pagedkv    the one that is installed

A source distribution has the headers, and what SWIG wrote, in it: it needs no SWIG.
"""

import os
import re
import shutil
import subprocess

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist

here = os.path.dirname(os.path.abspath(__file__))
os.chdir(here)
sources_around = os.path.exists("../../include/pagedkv/pagedkv.h") and os.path.exists("../swig/pagedkv.i")
swig_folder = "../swig" if sources_around else "vendor/swig"
vendored_headers = "vendor/include"
wrapper = "vendor/core_wrap.c"


def headers():
    prefix = os.environ.get("PAGEDKV_PREFIX")
    if prefix:
        return os.path.join(prefix, "include")
    return "../../include" if sources_around else vendored_headers


def version():
    with open(os.path.join(headers(), "pagedkv", "types.h"), encoding="utf-8") as file:
        return re.search(r'^#define PKV_VERSION_STRING "(.*)"$', file.read(), re.M).group(1)


def pkg_config(*options):
    tool = os.environ.get("PKG_CONFIG", "pkg-config")
    try:
        return subprocess.run([tool, *options, "pagedkv"], capture_output=True, text=True, check=True).stdout.split()
    except (OSError, subprocess.CalledProcessError):
        return None


def run_swig(output):
    tool = os.environ.get("SWIG", "swig")
    os.makedirs(os.path.dirname(output), exist_ok=True)
    flags = ["-python", "-builtin", "-doxygen", "-DSWIGWORDSIZE64", f"-I{headers()}", f"-I{swig_folder}"]
    subprocess.run([tool, *flags, "-o", output, "core/core.i"], check=True)


class BuildExt(build_ext):
    def build_extension(self, ext):
        if os.path.exists(wrapper) and not sources_around:
            source = wrapper
        else:
            source = os.path.join(self.build_temp, "core_wrap.c")
            run_swig(source)
        ext.sources.append(source)
        ext.include_dirs = [headers(), "core", swig_folder]
        self.find_library(ext)
        super().build_extension(ext)

    def find_library(self, ext):
        prefix = os.environ.get("PAGEDKV_PREFIX")
        built = os.path.join("..", "..", "build", "lib")
        if prefix:
            folder = os.path.join(os.path.abspath(prefix), "lib")
            ext.library_dirs, ext.runtime_library_dirs = [folder], [folder]
        elif sources_around and os.path.exists(os.path.join(built, "libpagedkv.so")):
            runtime = os.environ.get("PAGEDKV_RUNTIME_DIR")
            if not runtime:
                self.take_along(built)
            ext.library_dirs = [built]
            ext.extra_link_args = ["-Wl,-rpath," + (runtime or "$ORIGIN/lib")]
        elif pkg_config("--exists") is not None:
            installed = pkg_config("--modversion")[0]
            if installed.split(".")[:2] != version().split(".")[:2]:
                raise SystemExit(f"the libpagedkv that pkg-config finds is {installed}, this is for {version()}")
            ext.include_dirs += [flag[2:] for flag in pkg_config("--cflags-only-I")]
            ext.library_dirs = [flag[2:] for flag in pkg_config("--libs-only-L")]
            ext.runtime_library_dirs = ext.library_dirs
        else:
            raise SystemExit(
                "libpagedkv is not found: run `make` in the sources, install it (pkg-config pagedkv), or set PAGEDKV_PREFIX"
            )
        ext.libraries = ["pagedkv"]

    def take_along(self, built):
        """The library, and its plug-ins, as files of the package: in lib/, where the library looks for pagedkv/."""
        package = "pagedkv" if self.inplace else os.path.join(self.build_lib, "pagedkv")
        lib = os.path.join(package, "lib")
        shutil.rmtree(lib, ignore_errors=True)
        os.makedirs(os.path.join(lib, "pagedkv"))
        soname = "libpagedkv.so." + version().split(".")[0]
        shutil.copy(os.path.realpath(os.path.join(built, "libpagedkv.so")), os.path.join(lib, soname))
        plugins = os.path.join(built, "pagedkv")
        for name in sorted(os.listdir(plugins)) if os.path.isdir(plugins) else ():
            shutil.copy(os.path.join(plugins, name), os.path.join(lib, "pagedkv", name))
        strip = shutil.which("strip")
        for folder, _, names in os.walk(lib):
            for name in names if strip else ():
                subprocess.run([strip, "--strip-debug", os.path.join(folder, name)], check=False)


class SourceDistribution(sdist):
    def make_release_tree(self, base_dir, files):
        super().make_release_tree(base_dir, files)
        vendor = os.path.join(base_dir, "vendor")
        if sources_around:
            shutil.copytree(headers(), os.path.join(vendor, "include"))
            shutil.copytree(swig_folder, os.path.join(vendor, "swig"))
            run_swig(os.path.join(vendor, "core_wrap.c"))


core = sorted(os.path.join("core", name) for name in os.listdir("core") if name.endswith(".c"))
setup(
    version=version(),
    ext_modules=[
        Extension(
            "pagedkv._core",
            core,
            define_macros=[("NDEBUG", None)],
            extra_compile_args=["-std=gnu11", "-O2", "-fvisibility=hidden"],
            depends=["core/core.h", "core/core.i"],
        )
    ],
    cmdclass={"build_ext": BuildExt, "sdist": SourceDistribution},
)
