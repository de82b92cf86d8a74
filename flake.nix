{
  description = "Diagnostic terminal monitor for NVIDIA GPU hosts that train PyTorch models";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  outputs =
    { self, nixpkgs }:
    let
      # The version stands in gpumon/__init__.py alone.
      version = builtins.head (
        builtins.match ".*\n__version__ = \"([^\"]+)\"\n.*" (builtins.readFile ./gpumon/__init__.py)
      );
      gpumon =
        pkgs:
        pkgs.python3Packages.buildPythonApplication {
          pname = "gpumon-tui";
          inherit version;
          pyproject = true;
          src = self;
          build-system = [ pkgs.python3Packages.hatchling ];
          dependencies = with pkgs.python3Packages; [
            click
            nvidia-ml-py
            plotext
            prometheus-client
            (textual.overridePythonAttrs rec {
              version = "8.2.8"; # the one of pyproject.toml
              src = fetchPypi {
                pname = "textual";
                inherit version;
                hash = "sha256-PxBqn7xz453SZslxJDIIfeeKbWRAhMfCQdaiXDFpEVs=";
              };
              doCheck = false; # its tests are not in this archive
            })
          ];
          pythonRemoveDeps = [ "py-spy" ]; # a program in nixpkgs, which is put on the PATH
          makeWrapperArgs = [
            "--suffix PATH : ${pkgs.py-spy}/bin"
            "--suffix LD_LIBRARY_PATH : /run/opengl-driver/lib" # where NixOS has the libraries of the driver
          ];
          pythonImportsCheck = [ "gpumon.api" ];
          meta = {
            description = "Diagnostic terminal monitor for NVIDIA GPU hosts that train PyTorch models";
            mainProgram = "gpumon";
            platforms = [
              "x86_64-linux"
              "aarch64-linux"
            ];
          };
        };
      packages = system: { default = gpumon nixpkgs.legacyPackages.${system}; };
    in
    {
      packages.x86_64-linux = packages "x86_64-linux";
      packages.aarch64-linux = packages "aarch64-linux";
    };
}
